"""A table of the request versions that each release of Kafka speaks.

Source: the `validVersions` of Kafka's message definitions, release by release. Release 4.0 removed versions that no client of recent
years sends (KIP-896).
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["NEWEST", "ranges"]

NEWEST: Final = "4.3"
_OLDEST: Final = (0, 9)
_Steps = tuple[tuple[tuple[int, ...], int], ...]


def _steps(text: str) -> _Steps:
    """Return releases with the version that came with each."""
    pairs = (step.split(":") for step in text.split())
    return tuple((_release(release), int(version)) for release, version in pairs)


def _release(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


_HIGHEST: Final[Mapping[str, _Steps]] = MappingProxyType(
    {
        "Produce": _steps(
            "0.9:1 0.10:2 0.11:3 1.0:5 2.0:6 2.1:7 2.4:8 2.8:9 3.7:10 3.8:11 4.0:12 4.1:13"
        ),
        "Fetch": _steps(
            "0.9:1 0.10:2 0.10.1:3 0.11:5 1.0:6 1.1:7 2.0:8 2.1:10 2.3:11 2.7:12 3.1:13 3.5:15 3.7:16 3.9:17 4.1:18"
        ),
        "ListOffsets": _steps(
            "0.9:0 0.10.1:1 0.11:2 2.0:3 2.1:4 2.2:5 2.8:6 3.0:7 3.5:8 3.9:9 4.0:10 4.2:11"
        ),
        "Metadata": _steps(
            "0.9:0 0.10:1 0.10.1:2 0.11:4 1.0:5 2.0:6 2.1:7 2.3:8 2.4:9 2.8:11 3.1:12 4.0:13"
        ),
        "OffsetCommit": _steps("0.9:2 0.11:3 2.0:4 2.1:6 2.3:7 2.4:8 3.7:9 4.2:10"),
        "OffsetFetch": _steps("0.9:1 0.11:3 2.0:4 2.1:5 2.4:6 2.5:7 3.0:8 3.7:9 4.2:10"),
        "FindCoordinator": _steps("0.9:0 0.11:1 2.0:2 2.4:3 3.0:4 3.8:5 3.9:6"),
        "JoinGroup": _steps("0.9:0 0.10.1:1 0.11:2 2.0:3 2.2:4 2.3:5 2.4:6 2.5:7 3.2:9"),
        "Heartbeat": _steps("0.9:0 0.11:1 2.0:2 2.3:3 2.4:4"),
        "LeaveGroup": _steps("0.9:0 0.11:1 2.0:2 2.4:4 3.2:5"),
        "SyncGroup": _steps("0.9:0 0.11:1 2.0:2 2.3:3 2.4:4 2.5:5"),
        "ApiVersions": _steps("0.10:0 0.11:1 2.0:2 2.4:3 3.9:4"),
        "CreateTopics": _steps("0.10.1:0 0.10.2:1 0.11:2 2.0:3 2.4:5 2.7:6 2.8:7"),
        "DeleteTopics": _steps("0.10.1:0 0.11:1 2.0:2 2.1:3 2.4:4 2.7:5 2.8:6"),
        "InitProducerId": _steps("0.11:0 2.0:1 2.4:2 2.5:3 2.7:4 3.8:5 4.1:6"),
        "AddPartitionsToTxn": _steps("0.11:0 2.0:1 2.7:2 2.8:3 3.6:4 3.8:5"),
        "AddOffsetsToTxn": _steps("0.11:0 2.0:1 2.7:2 2.8:3 3.8:4"),
        "EndTxn": _steps("0.11:0 2.0:1 2.7:2 2.8:3 3.8:4 4.0:5"),
        "TxnOffsetCommit": _steps("0.11:0 2.0:1 2.1:2 2.5:3 3.8:4 4.0:5"),
        "OffsetForLeaderEpoch": _steps("0.11:0 2.0:1 2.1:2 2.3:3 2.8:4"),
        "DescribeConfigs": _steps("0.11:0 1.1:1 2.0:2 2.6:3 2.8:4"),
        "SaslHandshake": _steps("0.10:0 1.0:1"),
        "SaslAuthenticate": _steps("1.0:0 2.2:1 2.5:2"),
        "CreatePartitions": _steps("1.0:0 2.0:1 2.5:2 2.7:3"),
        "DescribeTransactions": _steps("3.0:0"),
        "ListTransactions": _steps("3.0:0 3.8:1 4.1:2"),
    }
)
_LOWEST: Final[Mapping[str, _Steps]] = MappingProxyType(
    {
        "Produce": _steps(
            "4.0:3"
        ),  # 4.0 advertises 0 all the same, for old librdkafkas (KAFKA-18659), and refuses it
        "Fetch": _steps("4.0:4"),
        "ListOffsets": _steps("4.0:1"),
        "OffsetCommit": _steps("4.0:2"),
        "OffsetFetch": _steps("4.0:1"),
        "CreateTopics": _steps("4.0:2"),
        "DeleteTopics": _steps("4.0:1"),
        "OffsetForLeaderEpoch": _steps("4.0:2"),
        "DescribeConfigs": _steps("4.0:1"),
    }
)


def ranges(release: str) -> dict[str, tuple[int, int]]:
    """Return lowest and highest version by request, of a release such as "2.8" or "0.10.2".

    Raises:
        ValueError: no release, or one that is not in the table.
    """
    try:
        wanted = _release(release)
    except ValueError:
        wanted = ()
    if not _OLDEST <= wanted <= (*_release(NEWEST), 99):
        raise ValueError(
            f"{release!r} is no release of Kafka from {'.'.join(map(str, _OLDEST))} to {NEWEST}"
        )
    spoken: dict[str, tuple[int, int]] = {}
    for api, steps in _HIGHEST.items():
        highest = _last(steps, wanted)
        if highest is not None:
            spoken[api] = (_last(_LOWEST.get(api, ()), wanted) or 0, highest)
    return spoken


def _last(steps: _Steps, wanted: tuple[int, ...]) -> int | None:
    """Return the version of the newest step that is not newer than `wanted`; None: there is none."""
    return next((version for release, version in reversed(steps) if release <= wanted), None)
