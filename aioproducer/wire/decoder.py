"""The generator of decoders: Python source for one message in one version, made from its fields.

1. The decoder compares a length with the bytes left before it makes an object of that length. It compares a count with the bytes that so
   many elements take at least.
2. A caller may give the most elements that a message can have. Their objects take a hundred times the bytes that they come from.
3. Every error is a ProtocolError. The generated code converts Python's own errors (an index, a struct, UTF-8) to it.
4. Unknown tags are skipped. Known tags that are absent, and fields that the version lacks, get their defaults.

A stepped decoder is the same source with a `yield` after each element of a top-level array and of the arrays in its elements.
"""

from __future__ import annotations

import struct
import sys
from contextlib import contextmanager
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from aioproducer.errors import ProtocolError
from aioproducer.wire.codegen import Source
from aioproducer.wire.primitives import numbers, read_uvarint, skip_tags
from aioproducer.wire.spec import ZERO_ID, default_source

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from aioproducer.wire.spec import Field, MessageSpec

# The most elements of a message, where the caller knows no number.
UNLIMITED: Final = sys.maxsize

# The format characters of module `struct`.
CODES: Final = {"i8": "b", "i16": "h", "i32": "i", "i64": "q", "bool": "?", "uuid": "16s"}
# A stepped decoder yields in top-level arrays and in the arrays in their elements, such as the partitions of topics.
_STEPPED_DEPTH: Final = 2
_FEW: Final = 9


class Decoder:
    """Makes the function `decode(buffer, offset=0, most=UNLIMITED) -> message` of a message and version.

    With `stepped`, it is a generator function `decode(buffer, offset=0)` that returns the message.
    """

    def __init__(
        self, spec: MessageSpec, version: int, types: Mapping[str, type[Any]], *, stepped: bool
    ) -> None:
        self._spec = spec
        self._version = version
        self._types = types
        self._stepped = stepped
        self._flexible = version >= spec.flexible
        self._array_depth = 0
        title = f"{spec.name} v{version}"
        names = {
            "ZERO_ID": ZERO_ID,
            "StructError": struct.error,
            "numbers": numbers,
            "read_uvarint": read_uvarint,
            "skip_tags": skip_tags,
        }
        self._source = Source(f"{title} decode{' in steps' if stepped else ''}", names)
        names["refused"] = lambda where, size, left: ProtocolError(
            f"{title}: {where} claims a size of {size} with {left} bytes left"
        )
        names["ended"] = lambda size: ProtocolError(
            f"{title}: the message goes on after its {size} bytes"
        )
        names["crowded"] = lambda where: ProtocolError(
            f"{title}: {where} has more elements than such a message can have here"
        )
        names["unreadable"] = lambda error: ProtocolError(
            f"{title}: text that is not UTF-8: {error.reason}"
        )
        names["surplus"] = lambda size: ProtocolError(f"{title}: {size} bytes follow the message")

    def make(self) -> Any:
        source = self._source
        with source.block(
            f"def decode(buffer, offset=0{'' if self._stepped else f', most={UNLIMITED}'}):"
        ):
            # `bytes` of a bytes object makes no copy
            source.line("data = bytes(buffer)")
            source.line("at, end = offset, len(data)")
            with source.block("try:"):
                source.line(f"message = {self._structure(self._spec.fields, self._spec.name)}")
            with source.block("except (IndexError, StructError) as error:"):
                source.line("raise ended(end - offset) from error")
            with source.block("except UnicodeDecodeError as error:"):
                source.line("raise unreadable(error) from error")
            with source.block("if at != end:"):
                source.line("raise surplus(end - at)")
            source.line("return message")
            if self._stepped:
                # never reached, but makes the function a generator even if the message has no arrays
                source.line("yield")
        return source.compile("decode")

    def _structure(self, fields: Sequence[Field], path: str) -> str:
        """Add the code that reads the fields. Returns the expression that makes their structure."""
        values: dict[str, str] = {}
        present = [field for field in fields if self._version in field.versions]
        for is_fixed, run in groupby(
            (field for field in present if field.tag is None), key=lambda field: field.is_fixed
        ):
            if is_fixed:
                self._fixed(list(run), values)
            else:
                for field in run:
                    values[field.name] = self._value(field)
        if self._flexible:
            self._tags([field for field in present if field.tag is not None], values)
        name = path.replace(".", "_")
        self._source.names[name] = self._types[path]
        return f"{name}({', '.join(values.get(field.name) or default_source(field) for field in fields)})"

    def _fixed(self, fields: Sequence[Field], values: dict[str, str]) -> None:
        """Add one `unpack_from` call that reads adjacent fields of fixed size."""
        for field in fields:
            values[field.name] = self._source.variable()
        codes = "".join(CODES[field.kind] for field in fields)
        unpack = self._source.layout(codes, "unpack_from")
        self._source.line(
            f"{', '.join(values[field.name] for field in fields)}, = {unpack}(data, at)"
        )
        self._source.line(f"at += {struct.calcsize('>' + codes)}")

    def _value(self, field: Field) -> str:
        """Add the code that reads one field. Returns the variable that holds it."""
        variable = self._source.variable()
        if field.is_array:
            self._array(field, variable)
        elif field.kind == "struct":
            self._source.line(f"{variable} = {self._structure(field.fields, field.path)}")
        # only a tagged field of fixed size comes here; it has no neighbours
        elif field.is_fixed:
            values: dict[str, str] = {}
            self._fixed([field], values)
            variable = values[field.name]
        else:
            self._sized(field, variable, nullable=self._version in field.null_versions)
        return variable

    def _length(self, size: int) -> None:
        """Add the code that sets `n` to a length or a count; -1 means null."""
        source = self._source
        if self._flexible:
            source.line("n = data[at]")
            source.line("at += 1")
            with source.block("if n > 127:"):
                source.line("n, at = read_uvarint(data, at - 1)")
            source.line("n -= 1")
        else:
            source.line(
                f"n, = {self._source.layout({2: 'h', 4: 'i'}[size], 'unpack_from')}(data, at)"
            )
            source.line(f"at += {size}")

    @contextmanager
    def _unless_null(self, variable: str, *, nullable: bool) -> Iterator[None]:
        source = self._source
        if not nullable:
            yield
            return
        with source.block("if n == -1:"):
            source.line(f"{variable} = None")
        with source.block("else:"):
            yield

    def _refuse(self, condition: str, where: str, size: str = "n") -> None:
        where = where.removeprefix(f"{self._spec.name}.")
        with self._source.block(f"if {condition}:"):
            self._source.line(f"raise refused({where!r}, {size}, end - at)")

    def _sized(self, field: Field, variable: str, *, nullable: bool) -> None:
        """Add the code that reads a string or bytes."""
        is_text = field.kind == "str"
        self._length(2 if is_text else 4)
        with self._unless_null(variable, nullable=nullable):
            self._source.line("stop = at + n")
            self._refuse("n < 0 or stop > end", field.path)
            self._source.line(f"{variable} = data[at:stop]{'.decode()' if is_text else ''}")
            self._source.line("at = stop")

    def _array(self, field: Field, variable: str) -> None:
        smallest = self._smallest_element(field)
        with self._unless_few(field, variable, smallest):
            self._length(4)
            with self._unless_null(variable, nullable=self._version in field.null_versions):
                self._refuse(f"n < 0 or n * {smallest} > end - at", field.path)
                if field.kind in {"str", "struct"}:
                    self._elements(field, variable)
                else:
                    self._source.line(
                        f"{variable} = numbers({CODES[field.kind]!r}, n).unpack_from(data, at)"
                    )
                    self._source.line(f"at += n * {smallest}")

    @contextmanager
    def _unless_few(self, field: Field, variable: str, size: int) -> Iterator[None]:
        """Add a faster branch for a short compact array of numbers, such as replicas; the code of the `with` block reads other arrays.

        The branch looks the layout up in a table, which reduces the time to decode a Metadata answer by a fifth.
        """
        source = self._source
        if not self._flexible or field.kind not in CODES:
            yield
            return
        few = f"few_{CODES[field.kind]}"
        # a compact array stores its count plus one, which is the index in this table
        source.names[few] = [
            numbers(CODES[field.kind], max(count - 1, 0)).unpack_from for count in range(_FEW)
        ]
        source.line("n = data[at]")
        with source.block("if n == 1:"):
            source.line(f"{variable} = ()")
            source.line("at += 1")
        with source.block(f"elif 1 < n < {_FEW}:"):
            source.line(f"{variable} = {few}[n](data, at + 1)")
            source.line(f"at += 1 + (n - 1) * {size}")
        with source.block("else:"):
            yield

    def _elements(self, field: Field, variable: str) -> None:
        source = self._source
        source.line(f"{variable} = []")
        append = source.variable()
        self._array_depth += 1
        # many arrays are empty
        with source.block("if n:"):
            if not self._stepped:
                source.line("most -= n")
                with source.block("if most < 0:"):
                    source.line(
                        f"raise crowded({field.path.removeprefix(f'{self._spec.name}.')!r})"
                    )
            source.line(f"{append} = {variable}.append")
            with source.block("for _ in range(n):"):
                if field.kind == "str":
                    element = source.variable()
                    self._sized(field, element, nullable=False)
                else:
                    element = self._structure(field.fields, field.path)
                source.line(f"{append}({element})")
                if self._stepped and self._array_depth <= _STEPPED_DEPTH:
                    source.line("yield")
        self._array_depth -= 1

    def _tags(self, fields: Sequence[Field], values: dict[str, str]) -> None:
        """Add the code that reads the known tagged fields and skips the others."""
        source = self._source
        if not fields:
            source.line("at = at + 1 if not data[at] else skip_tags(data, at)")
            return
        for field in fields:
            values[field.name] = source.variable()
            source.line(f"{values[field.name]} = {default_source(field)}")
        source.line("n = data[at]")
        source.line("at += 1")
        with source.block("if n:"):
            source.line("n, at = read_uvarint(data, at - 1)")
            tag, close = source.variable(), source.variable()
            with source.block("for _ in range(n):"):
                source.line(f"{tag}, at = read_uvarint(data, at)")
                source.line("n, at = read_uvarint(data, at)")
                source.line(f"{close} = at + n")
                self._refuse(f"{close} > end", "a tagged field")
                for field in fields:
                    with source.block(f"if {tag} == {field.tag}:"):
                        source.line(f"{values[field.name]} = {self._value(field)}")
                        self._refuse(f"at != {close}", field.path, f"{close} - at")
                source.line(f"at = {close}")

    def _smallest_element(self, field: Field) -> int:
        """Return the fewest bytes that one element of an array takes."""
        if field.kind in CODES:
            return struct.calcsize(f">{CODES[field.kind]}")
        if field.kind == "str":
            return 1 if self._flexible else 2
        present = [
            inner for inner in field.fields if inner.tag is None and self._version in inner.versions
        ]
        return sum(map(self._smallest, present)) + self._flexible

    def _smallest(self, field: Field) -> int:
        if field.is_array or field.kind == "bytes":
            return 1 if self._flexible else 4
        return self._smallest_element(field)
