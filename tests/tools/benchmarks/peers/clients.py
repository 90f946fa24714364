"""Lists the bench's clients by name, with the functions of Python clients. `outsiders` runs the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.tools.benchmarks import clients as ours
from tests.tools.benchmarks.clients import OURS, PEER, PURE, Kind
from tests.tools.benchmarks.peers import confluent, kafka_python

if TYPE_CHECKING:
    from collections.abc import Mapping

CALLBACK, SILENT, AIO, KAFKA_PYTHON, JAVA, FRANZ = "confluent", "confluent_silent", "confluent_aio", "kafka_python", "java", "franz_go"
BULK: Final = "confluent_bulk"

CLIENTS: Final[Mapping[str, Kind]] = ours.CLIENTS | {
    CALLBACK: Kind(
        open=confluent.producer,
        ways={"stream": confluent.stream, "mixed": confluent.mixed, "single": confluent.single},
        build=confluent.build,
    ),
    SILENT: Kind(open=confluent.producer, ways={"stream": confluent.stream_silent, "many": confluent.many_silent}, build=confluent.build),
    BULK: Kind(open=confluent.producer, ways={"many": confluent.many_batch}, build=confluent.build),
    AIO: Kind(
        open=confluent.aio_producer,
        ways={
            "stream": confluent.aio_stream,
            "mixed": confluent.aio_mixed,
            "gather": confluent.aio_gather,
            "single": confluent.aio_single,
            "herd": confluent.aio_herd,
        },
        build=confluent.build,
    ),
    KAFKA_PYTHON: Kind(
        open=kafka_python.producer,
        ways={"stream": kafka_python.stream, "mixed": kafka_python.mixed, "single": kafka_python.single},
        build=kafka_python.build,
    ),
}
WORDS: Final[Mapping[str, str]] = {
    OURS: "aioproducer",
    PURE: "aioproducer, plain Python",
    PEER: "aiokafka",
    AIO: "confluent AIOProducer",
    CALLBACK: "confluent Producer, callback",
    SILENT: "confluent Producer, no callback",
    BULK: "confluent Producer, `produce_batch`",
    KAFKA_PYTHON: "kafka-python",
    JAVA: "Java, ProducerPerformance",
    FRANZ: "franz-go",
}
"""As the report calls them, in its order."""
