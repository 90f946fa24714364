"""Which versions two peers agree on."""

from __future__ import annotations

import pytest

from aioproducer.wire.api import NAMES, ApiKey, is_flexible, negotiate
from aioproducer.wire.messages import SPECS


def test_each_request_has_its_answer() -> None:
    """Names lead to both messages, with the same versions."""
    for name in NAMES.values():
        request, response = SPECS[f"{name}.request"], SPECS[f"{name}.response"]
        assert (request.versions, request.flexible) == (response.versions, response.flexible)
    assert len(SPECS) == 2 * len(NAMES)


@pytest.mark.parametrize(
    ("theirs", "version"),
    [
        ((0, 13), 13),
        ((0, 99), 13),
        ((0, 9), 9),
        ((3, 3), 3),
        ((13, 20), 13),
        ((0, 2), 2),  # a broker before 0.11
        ((14, 20), None),
        ((9, 8), None),
    ],
)
def test_the_highest_common_version_is_taken(theirs: tuple[int, int], version: int | None) -> None:
    """For Produce, of which we know 0 to 13."""
    assert negotiate(ApiKey.PRODUCE, {0: theirs, 3: (0, 13)}) == version


def test_a_version_that_we_forgot_is_not_taken() -> None:
    """A broker of Kafka 0.9 knows Fetch 0 to 1; we know 4 and above."""
    assert negotiate(ApiKey.FETCH, {1: (0, 1)}) is None


def test_a_request_that_the_broker_does_not_list_has_no_version() -> None:
    """None, as without a common one."""
    assert negotiate(ApiKey.PRODUCE, {}) is None


def test_flexible_headers_begin_where_kafka_says() -> None:
    """Produce from 9 on; of requests that we do not know, none."""
    assert [version for version in range(15) if is_flexible(ApiKey.PRODUCE, version)] == list(
        range(9, 15)
    )
    assert not is_flexible(999, 5)
