"""Makes columns of buffers, for the tests of what reads them."""

from __future__ import annotations

from array import array
from typing import Any

__all__ = ["Pairs", "bits", "headers", "partitions", "strings"]

Pairs = list[tuple[Any, Any]] | None


def bits(there: list[bool]) -> bytes:
    return sum(is_there << at for at, is_there in enumerate(there)).to_bytes(
        (len(there) + 7) // 8, "little"
    )


def strings(build: Any, rows: list[bytes | None], before: int = 0) -> Any:
    ends = [0] * (before + 1)
    for row in rows:
        ends.append(ends[-1] + len(row or b""))
    validity = bits([True] * before + [row is not None for row in rows])
    return build.Strings(
        validity,
        array("i", ends).tobytes(),
        b"".join(filter(None, rows)),
        before,
        len(rows),
        is_large=False,
    )


def headers(build: Any, rows: list[Pairs], before: int = 0, *, is_large: bool = False) -> Any:
    """A column of these lists, behind so many other rows; in it are a header before the first one, and one behind the last."""
    pairs: list[Any] = [("before", b"")]
    ends = [1] * (before + 1)
    for row in rows:
        pairs += row or []
        ends.append(len(pairs))
    pairs.append(None)
    names = [None if pair is None or pair[0] is None else pair[0].encode() for pair in pairs]
    children = strings(build, names, 2), strings(build, [pair and pair[1] for pair in pairs])
    validity = bits([True] * before + [row is not None for row in rows])
    there = bits([False] * 3 + [pair is not None for pair in pairs])
    offsets = array("q" if is_large else "i", ends).tobytes()
    return build.Headers(
        validity, offsets, before, len(rows), (there, 3), *children, is_large=is_large
    )


def partitions(
    build: Any, rows: list[int | None], before: int = 0, *, is_large: bool = False
) -> Any:
    packed = array(
        "q" if is_large else "i", [9] * before + [-5 if row is None else row for row in rows]
    ).tobytes()
    return build.Partitions(
        bits([False] * before + [row is not None for row in rows]),
        packed,
        before,
        len(rows),
        is_large=is_large,
    )
