"""The LZ4 frame header of message sets of magic 0: its checksum also covers the frame's magic number (KAFKA-3160).

Kafka's first LZ4 writer made that mistake, and the brokers and clients of that format accept no other checksum.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from aioproducer.interfaces import Buffer

__all__ = ["mend", "spoil"]

_MAGIC_END: Final = 4
# Bytes of magic number, flags and block descriptor. Content size and dictionary id follow if the flags have their bits.
_LEAST_END: Final = 6
_CONTENT_SIZE: Final = 0x08
_DICTIONARY_ID: Final = 0x01

# XXH32's primes; its specification numbers them from 1.
_PRIMES: Final = (2654435761, 2246822519, 3266489917, 668265263, 374761393)
_WORD: Final = 0xFFFFFFFF


def spoil(frame: Buffer) -> bytes:
    """Return a valid frame with the checksum of magic 0."""
    return _with_checksum(frame, 0)


def mend(frame: Buffer) -> bytes:
    """Return a frame of magic 0 with the valid checksum.

    The frame's own checksum is not verified, as in Java. A frame that is too short is returned unchanged.
    """
    return _with_checksum(frame, _MAGIC_END)


def _with_checksum(frame: Buffer, start: int) -> bytes:
    if len(frame) <= _LEAST_END:
        return bytes(frame)
    flags = frame[_MAGIC_END]
    end = _LEAST_END + (8 if flags & _CONTENT_SIZE else 0) + (4 if flags & _DICTIONARY_ID else 0)
    if len(frame) <= end:
        return bytes(frame)
    return b"".join((frame[:end], bytes((_xxh32(frame[start:end]) >> 8 & 0xFF,)), frame[end + 1 :]))


def _xxh32(data: Buffer) -> int:
    """Return XXH32 with seed 0 of fewer than 16 bytes.

    A header for `mend` has at most 14 bytes. The frames that this library writes have 6 with their magic number.
    """
    one, two, three, four, five = _PRIMES
    value = five + len(data)
    words = len(data) // 4
    for word in struct.unpack_from(f"<{words}I", data):
        value = _rotated(value + word * three, 17) * four
    for byte in data[words * 4 :]:
        value = _rotated(value + byte * five, 11) * one
    value &= _WORD
    value = (value ^ value >> 15) * two & _WORD
    value = (value ^ value >> 13) * three & _WORD
    return value ^ value >> 16


def _rotated(value: int, bits: int) -> int:
    value &= _WORD
    return (value << bits | value >> 32 - bits) & _WORD
