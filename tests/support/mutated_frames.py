"""A program: takes apart mutated frames of every message and version, and prints as JSON what became of them.

Its own process, so that memory and time are those of decoding alone: `python mutated_frames.py 200000`.
"""

from __future__ import annotations

import gc
import itertools
import json
import random
import resource
import sys
import time
from collections import Counter
from typing import NamedTuple

from wire_samples import EVERY_CODEC, encoded, full_sample, mutated

from aioproducer.errors import ProtocolError
from aioproducer.testing.frames import decode_request, encode_response
from aioproducer.wire.api import CLIENT_VERSIONS, NAMES, ApiKey
from aioproducer.wire.frame import FrameReader, decode_response, encode_request
from aioproducer.wire.schema import codec, message

_KEYS = {name: key for key, name in NAMES.items()}
_SIZE = 4


class Sample(NamedTuple):
    """A sound frame with its size, and what it is."""

    key: ApiKey
    version: int
    is_request: bool
    frame: bytes


def samples() -> list[Sample]:
    """Return two samples for every message and version: one with every field set, and one of defaults."""
    found = []
    for name, version in EVERY_CODEC:
        api, _, side = name.partition(".")
        for body in (full_sample(name, version), encoded(name, version, message(name))):
            if side == "request":
                frame = encode_request(_KEYS[api], version, 7, "me", [body])
            else:
                frame = encode_response(_KEYS[api], version, 7, [body])
            found.append(Sample(_KEYS[api], version, side == "request", b"".join(frame)))
    return found


def spoilt(sample: Sample, chance: random.Random) -> bytes:
    """Its bytes changed: header and message, now and then the size too."""
    if not chance.randrange(16):
        return mutated(sample.frame, chance)
    frame = mutated(sample.frame[_SIZE:], chance)
    return len(frame).to_bytes(_SIZE, "big") + frame


def take(sample: Sample, stream: bytes) -> str:
    """Return the result that a broker or a client gets from the bytes. An exception other than ProtocolError is a bug."""
    try:
        reader = FrameReader()
        frames = reader.feed(stream)
        for frame in frames:
            if sample.is_request:
                header = decode_request(frame)
                lowest, highest = CLIENT_VERSIONS.get(header.key, (0, -1))
                if not lowest <= header.version <= highest:
                    return "another request"
                codec(f"{NAMES[ApiKey(header.key)]}.request", header.version).decode(
                    frame, header.offset
                )
            else:
                _, offset = decode_response(sample.key, sample.version, frame)
                codec(f"{NAMES[sample.key]}.response", sample.version).decode(frame, offset)
        reader.check()
    except ProtocolError:
        return "refused"
    return "taken" if frames else "not whole"


def timed(sample: Sample, stream: bytes) -> tuple[str, float]:
    """Take the bytes. Returns the result and the CPU seconds that it took."""
    started = time.thread_time()
    return take(sample, stream), time.thread_time() - started


def main(count: int) -> None:
    """Prints the count of each outcome, the slowest frame in CPU milliseconds, and by how many bytes the process grew."""
    sound, chance = samples(), random.Random("mutated frames")
    for sample in sound:
        if take(sample, sample.frame) != "taken":
            raise AssertionError(f"{sample} is no sound frame")
    gc.collect()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    outcomes: Counter[str] = Counter()
    slowest = 0.0
    for sample in itertools.islice(itertools.cycle(sound), count):
        stream = spoilt(sample, chance)
        outcome, took = timed(sample, stream)
        outcomes[outcome] += 1
        if took > slowest:  # a busy machine may make one of them look slow
            slowest = max(slowest, min(took, timed(sample, stream)[1]))
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * (
        1 if sys.platform == "darwin" else 1024
    )
    print(
        json.dumps(
            {
                "outcomes": outcomes,
                "slowest_ms": slowest * 1000,
                "grown": grown,
                "codecs": len(EVERY_CODEC),
            }
        )
    )


if __name__ == "__main__":
    main(int(sys.argv[1]))
