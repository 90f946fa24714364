"""Exports an array by the Arrow C data interface with ctypes alone: importing pyarrow starts threads, and their instructions are not counted."""

from __future__ import annotations

import ctypes
import struct
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["ExportedArray", "exported_bytes"]

_new_capsule: Final = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi)
)
_RELEASE: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _structure: None)


class ExportedArray:
    """Exports buffers as one array. It owns them: it must live as long as what was read from it.

    Args:
        form: the format of Arrow's schema, such as b"z" for bytes.
        length, offset, null_count: the array's numbers, which may be false.
        buffers: the array's buffers; None: a null pointer.
        is_dictionary: True if the schema names a dictionary.
        is_released: True if the structures were released before.
    """

    def __init__(
        self,
        form: bytes,
        length: int,
        buffers: Sequence[bytes | None],
        *,
        offset: int = 0,
        null_count: int = 0,
        is_dictionary: bool = False,
        is_released: bool = False,
    ) -> None:
        self._held: list[Any] = []
        release = 0 if is_released else ctypes.cast(_RELEASE, ctypes.c_void_p).value
        pointers = self._hold(struct.pack(f"{len(buffers)}P", *(0 if buffer is None else self._hold(buffer) for buffer in buffers)))
        schema = struct.pack("PPPqqPPPP", self._hold(form + b"\0"), 0, 0, 0, 0, 0, is_dictionary, release, 0)
        array = struct.pack("qqqqqPPPPP", length, null_count, offset, len(buffers), 0, pointers, 0, 0, release, 0)
        self._schema, self._array = self._hold(schema), self._hold(array)

    def _hold(self, content: bytes) -> int:
        """Return the address of a copy, which lives as long as this object."""
        self._held.append(ctypes.create_string_buffer(content, len(content)))
        return ctypes.addressof(self._held[-1])

    def __arrow_c_schema__(self) -> object:
        return _new_capsule(self._schema, b"arrow_schema", None)

    def __arrow_c_array__(self, _requested: object = None) -> tuple[object, object]:
        return self.__arrow_c_schema__(), _new_capsule(self._array, b"arrow_array", None)


def exported_bytes(values: Sequence[bytes]) -> ExportedArray:
    """Return an array of the type `binary`, without nulls."""
    ends = accumulate(map(len, values), initial=0)
    return ExportedArray(b"z", len(values), [None, struct.pack(f"{len(values) + 1}i", *ends), b"".join(values)])
