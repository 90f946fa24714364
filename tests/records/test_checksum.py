"""CRC-32C: the compiled function and the package agree."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import crc32c as package
import pytest

from aioproducer.build import COLUMNS, extension
from aioproducer.records.record_batch import crc32c

if TYPE_CHECKING:
    from collections.abc import Callable

COMPILED: Any = extension(COLUMNS).module
# RFC 3720, B.4.
KNOWN = {
    bytes(32): 0x8A9136AA,
    b"\xff" * 32: 0x62A8AB43,
    bytes(range(32)): 0x46DD794E,
    bytes(reversed(range(32))): 0x113FDB5C,
    b"123456789": 0xE3069283,
    b"": 0,
}


def functions() -> dict[str, Callable[..., int]]:
    """Each function that this Python has."""
    found: dict[str, Callable[..., int]] = {"chosen": crc32c}
    if COMPILED is not None and COMPILED.HAS_CRC:
        found["compiled"] = COMPILED.crc32c
    return found


@pytest.mark.parametrize("name", functions())
def test_the_checksums_of_the_rfc(name: str) -> None:
    """And of any cut into two, and of any buffer."""
    function = functions()[name]
    for data, crc in KNOWN.items():
        assert function(data) == crc
        for at in range(len(data)):
            assert function(data[at:], function(data[:at])) == crc
        assert function(bytearray(data)) == function(memoryview(b"-" + data)[1:]) == crc


@pytest.mark.parametrize("name", functions())
def test_any_length_gives_what_the_package_gives(name: str) -> None:
    """Each length around the words and blocks that a processor takes at once."""
    dice = random.Random(7)
    function = functions()[name]
    for size in (*range(130), 1023, 3071, 3072, 3073, 4097, 9300, 70_001):
        data, before = dice.randbytes(size), dice.getrandbits(32)
        assert function(data, before) == package.crc32c(data, before)


@pytest.mark.skipif(
    COMPILED is None or not COMPILED.HAS_CRC, reason="the function of the compiled build"
)
@pytest.mark.parametrize("bad", ["text", 5, None])
def test_what_is_no_buffer_is_refused(bad: Any) -> None:
    """As by the package."""
    with pytest.raises(TypeError):
        COMPILED.crc32c(bad)
