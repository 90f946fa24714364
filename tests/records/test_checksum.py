"""CRC-32C: the compiled function, the packages' and the table agree, and the slow one is warned of."""

from __future__ import annotations

import importlib
import random
import sys
from typing import TYPE_CHECKING, Any

import crc32c as package
import pytest

from aioproducer.records import checksum

if TYPE_CHECKING:
    from collections.abc import Callable

COMPILED: Any = checksum.extension("aioproducer.records._columns").module
# RFC 3720, B.4.
KNOWN = {
    bytes(32): 0x8A9136AA,
    b"\xff" * 32: 0x62A8AB43,
    bytes(range(32)): 0x46DD794E,
    bytes(reversed(range(32))): 0x113FDB5C,
    b"123456789": 0xE3069283,
    b"": 0,
}


class Google:
    """Stands in for google-crc32c, which takes bytes alone."""

    implementation = "c"

    @staticmethod
    def extend(value: int, data: bytes) -> int:
        assert type(data) is bytes
        return package.crc32c(data, value)


def functions() -> dict[str, Callable[..., int]]:
    """Each function that this Python has."""
    found = {"chosen": checksum.crc32c, "crc32c": checksum.by_crc32c(), "table": checksum.by_table()}
    if COMPILED is not None:
        found |= {"compiled": COMPILED.crc32c, "compiled table": COMPILED.crc32c_by_table}
    return {name: function for name, function in found.items() if function is not None}


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


@pytest.mark.skipif(COMPILED is None, reason="the functions of the compiled build")
@pytest.mark.parametrize("bad", ["text", 5, None])
def test_what_is_no_buffer_is_refused(bad: Any) -> None:
    """As by the package."""
    with pytest.raises(TypeError):
        COMPILED.crc32c(bad)


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """No compiled build, and no package google-crc32c."""
    monkeypatch.setenv("AIOPRODUCER_PURE", "1")
    monkeypatch.setitem(sys.modules, "google_crc32c", None)
    return monkeypatch


def test_plain_python_takes_a_package(plain: pytest.MonkeyPatch) -> None:
    """google-crc32c before crc32c, which takes longer to import; not if it is plain Python itself."""
    assert checksum.choose() == ("crc32c", package.crc32c)
    plain.setitem(sys.modules, "google_crc32c", Google)
    name, function = checksum.choose()
    assert (name, function(bytearray(b"56789"), function(b"1234"))) == ("google-crc32c", 0xE3069283)
    plain.setattr(Google, "implementation", "python")
    assert checksum.choose()[0] == "crc32c"


def test_without_packages_one_warning_says_what_to_install(plain: pytest.MonkeyPatch) -> None:
    """It is the module's import that warns, which happens once."""
    plain.setitem(sys.modules, "crc32c", None)
    with pytest.warns(RuntimeWarning, match="Install the compiled build of aioproducer, or the package crc32c or google-crc32c") as warned:
        reloaded = importlib.reload(checksum)
    try:
        assert len(warned) == 1
        assert reloaded.SOURCE == "plain Python"
        assert reloaded.crc32c(b"123456789") == 0xE3069283
    finally:
        plain.undo()
        importlib.reload(checksum)
