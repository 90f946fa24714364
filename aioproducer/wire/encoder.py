"""The generator of encoders: Python source for one message in one version, made from its fields.

The encoder joins small pieces. Large buffers of `bytes` fields become chunks of their own without a copy, so the transport gets record
batches as they are. Fields that the version lacks are not written. A tagged field is written if it differs from its default.
"""

from __future__ import annotations

import struct
from itertools import groupby
from typing import TYPE_CHECKING, Any

from aioproducer.wire.codegen import Source
from aioproducer.wire.decoder import CODES
from aioproducer.wire.primitives import VARINT, numbers, splice, uvarint
from aioproducer.wire.spec import ZERO_ID, default_source

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioproducer.wire.spec import Field, MessageSpec

_NAMES = {
    "BUFFERS": (bytes, bytearray, memoryview),
    "VARINT": VARINT,
    "ZERO_ID": ZERO_ID,
    "ZERO": VARINT[0],
    "StructError": struct.error,
    "join": b"".join,
    "numbers": numbers,
    "splice": splice,
    "uvarint": uvarint,
}


class Encoder:
    """Makes the function `encode(message) -> chunks` of a message and version."""

    def __init__(self, spec: MessageSpec, version: int) -> None:
        self._spec = spec
        self._version = version
        self._flexible = version >= spec.flexible
        self._write = "write"
        title = f"{spec.name} v{version}"
        self._source = Source(f"{title} encode", dict(_NAMES))
        self._source.names["refused"] = lambda error: ValueError(
            f"{title} cannot hold such a value: {error}"
        )

    def make(self) -> Any:
        source = self._source
        with source.block("def encode(message):"):
            source.line("chunks = []")
            source.line("small = []")
            source.line("write = small.append")
            with source.block("try:"):
                self._structure(self._spec.fields, "message")
                with source.block("if small:"):
                    source.line("chunks.append(join(small))")
            with source.block(
                "except (AttributeError, StructError, TypeError, UnicodeEncodeError) as error:"
            ):
                source.line("raise refused(error) from error")
            source.line("return chunks")
        return source.compile("encode")

    def _structure(self, fields: Sequence[Field], owner: str) -> None:
        present = [field for field in fields if self._version in field.versions]
        for is_fixed, run in groupby(
            (field for field in present if field.tag is None), key=lambda field: field.is_fixed
        ):
            if is_fixed:
                self._fixed(list(run), owner)
            else:
                for field in run:
                    self._value(field, f"{owner}.{field.name}")
        if self._flexible:
            self._tags([field for field in present if field.tag is not None], owner)

    def _fixed(self, fields: Sequence[Field], owner: str) -> None:
        """Add one `pack` call that writes adjacent fields of fixed size."""
        values = [f"{owner}.{field.name}" for field in fields]
        for field, value in zip(fields, values, strict=True):
            # `struct` would cut or pad a value of another length
            if field.kind == "uuid":
                with self._source.block(f"if len({value}) != 16:"):
                    self._source.line(f"raise refused('{field.path} is not 16 bytes long')")
        pack = self._source.layout("".join(CODES[field.kind] for field in fields), "pack")
        self._source.line(f"{self._write}({pack}({', '.join(values)}))")

    def _value(self, field: Field, value: str) -> None:
        """Add the code that writes one field that is not of fixed size."""
        if field.kind == "struct" and not field.is_array:
            self._structure(field.fields, value)
            return
        source, variable = self._source, self._source.variable()
        source.line(f"{variable} = {value}")
        width = 2 if field.kind == "str" and not field.is_array else 4
        if self._version in field.null_versions:
            null = b"\x00" if self._flexible else b"\xff" * width
            with source.block(f"if {variable} is None:"):
                source.line(f"{self._write}({null!r})")
            with source.block("else:"):
                self._sized(field, variable)
        else:
            self._sized(field, variable)

    def _sized(self, field: Field, variable: str) -> None:
        """Add the code that writes a length or a count, and then the value."""
        if field.is_array:
            self._array(field, variable)
        elif field.kind == "str":
            self._text(variable)
        else:
            with self._source.block(f"if isinstance({variable}, BUFFERS):"):
                self._source.line(f"{variable} = ({variable},)")
            self._length(f"sum(map(len, {variable}))", 4)
            self._source.line(f"splice(chunks, small, {variable})")

    def _array(self, field: Field, variable: str) -> None:
        source = self._source
        if field.null_versions and self._version not in field.null_versions:
            # in versions without null, an empty array has the meaning of null (Metadata v0: all topics)
            source.line(f"{variable} = () if {variable} is None else {variable}")
        self._length(f"len({variable})", 4)
        if field.kind in CODES:
            source.line(
                f"{self._write}(numbers({CODES[field.kind]!r}, len({variable})).pack(*{variable}))"
            )
            return
        element = source.variable()
        with source.block(f"for {element} in {variable}:"):
            if field.kind == "str":
                self._text(element)
            else:
                self._structure(field.fields, element)

    def _text(self, variable: str) -> None:
        self._source.line(f"{variable} = {variable}.encode()")
        self._length(f"len({variable})", 2)
        self._source.line(f"{self._write}({variable})")

    def _length(self, size: str, width: int) -> None:
        if self._flexible:
            self._source.line(f"n = {size} + 1")
            self._varint("n")
        else:
            self._source.line(
                f"{self._write}({self._source.layout({2: 'h', 4: 'i'}[width], 'pack')}({size}))"
            )

    def _varint(self, name: str) -> None:
        self._source.line(f"{self._write}(VARINT[{name}] if {name} < 128 else uvarint({name}))")

    def _tags(self, fields: Sequence[Field], owner: str) -> None:
        """Add the code that writes the tagged fields, each into a list of its own first, because its size precedes it."""
        source = self._source
        if not fields:
            source.line(f"{self._write}(ZERO)")
            return
        outer, tagged = self._write, source.variable()
        source.line(f"{tagged} = []")
        for field in sorted(fields, key=lambda field: field.tag or 0):
            value, body = source.variable(), source.variable()
            source.line(f"{value} = {owner}.{field.name}")
            with source.block(f"if {self._differs(field, value)}:"):
                source.line(f"{body} = []")
                self._write = f"{body}.append"
                if field.is_fixed:
                    self._fixed([field], owner)
                else:
                    self._value(field, value)
                source.line(f"{body} = join({body})")
                source.line(
                    f"{tagged}.append(uvarint({field.tag}) + uvarint(len({body})) + {body})"
                )
        self._write = outer
        source.line(f"{self._write}(VARINT[len({tagged})])")
        with source.block(f"if {tagged}:"):
            source.line(f"{self._write}(join({tagged}))")

    def _differs(self, field: Field, value: str) -> str:
        """Return the condition under which a value is not the default.

        A structure has its default if all its fields have theirs; None means the default too.
        """
        if field.is_array:
            return value
        if field.kind == "struct":
            inner = (f"{value}.{part.name} != {default_source(part)}" for part in field.fields)
            return f"{value} is not None and ({' or '.join(inner)})"
        return f"{value} != {default_source(field)}"
