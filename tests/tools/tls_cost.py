"""Measures what TLS costs: our producer over PLAINTEXT and SSL on one real broker with its full JIT, beside peers over TLS.

    python -m tests.tools.tls_cost [--rounds 4] [--records 200000] [--builds plain,compiled] [--loops asyncio,uvloop]
                                    [--workloads stream,single,paced]

Every measurement is a process of its own, and rounds go through all of them in turn, so that what else the machine does meets all alike.
Each figure is the median of its rounds, and behind it the best.

    stream    records of 100 B in batches of 16 KiB, as fast as they go: CPU microseconds of a record, all threads of the process
    single    one record at a time: the milliseconds from `send_and_wait` to its answer
    paced     20,000 records a second, 20 in a millisecond: the milliseconds from `send` to the acknowledgement, of each tenth record

`built-in` is our producer over asyncio's or uvloop's own TLS, by a dialer; the producer itself then speaks PLAINTEXT.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import ssl
import sys
import time
from statistics import median
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import uvloop

from aioproducer.testing.kafka_security import KafkaSecurity
from aioproducer.testing.kafka_server import KafkaServer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from aioproducer.interfaces import Receiver, Stream

VALUE: Final = b"v" * 100
SINGLES: Final = 1_000
PACED_SECONDS: Final = 4.0
A_MILLISECOND: Final = 20
LOOPS: Final = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
PEERS: Final = ("aiokafka", "confluent")


class Case(NamedTuple):
    """One measurement: a client, over what, doing what."""

    client: str
    over: str  # PLAINTEXT, SSL, built-in
    workload: str
    loop: str
    build: str


class BuiltInTls:
    """Dials with the loop's own TLS."""

    def __init__(self, ca: str) -> None:
        self._context = _context(ca)

    async def dial(self, host: str, port: int, receiver: Callable[[], Receiver]) -> Stream:
        loop = asyncio.get_running_loop()
        made: Any = receiver
        transport, _ = await loop.create_connection(made, host, port, ssl=self._context, server_hostname=host)
        return transport


def _context(ca: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(ca)
    return context


def quantiles(seconds: list[float]) -> dict[str, float]:
    """Return p50 and p99 in milliseconds."""
    ordered = sorted(seconds)
    return {"p50 ms": ordered[len(ordered) // 2] * 1e3, "p99 ms": ordered[len(ordered) * 99 // 100] * 1e3}


def producer_of(case: Case, server: str, ca: str) -> Any:
    """Return a producer of ours or aiokafka's, not started."""
    if case.client == "aiokafka":
        from aiokafka import AIOKafkaProducer

        secured = {} if case.over == "PLAINTEXT" else {"security_protocol": "SSL", "ssl_context": _context(ca)}
        return AIOKafkaProducer(bootstrap_servers=server, enable_idempotence=True, **secured)
    from aioproducer import Producer, build_info

    assert (build_info().build == "compiled") is (case.build == "compiled"), build_info()
    if case.over == "built-in":
        return Producer(bootstrap_servers=server, dialer=BuiltInTls(ca))
    secured = {} if case.over == "PLAINTEXT" else {"security_protocol": "SSL", "ssl_truststore_location": ca}
    return Producer(bootstrap_servers=server, **secured)


async def stream(producer: Any, topic: str, records: int) -> dict[str, float]:
    cpu, wall = time.process_time(), time.perf_counter()
    for _ in range(records):
        await producer.send(topic, VALUE)
    await producer.flush()
    return {"us": (time.process_time() - cpu) / records * 1e6, "records/s": records / (time.perf_counter() - wall)}


async def single(producer: Any, topic: str, _records: int) -> dict[str, float]:
    took = []
    cpu = time.process_time()
    for _ in range(SINGLES):
        begun = time.perf_counter()
        await producer.send_and_wait(topic, VALUE)
        took.append(time.perf_counter() - begun)
    return {"us": (time.process_time() - cpu) / SINGLES * 1e6, **quantiles(took)}


async def paced(producer: Any, topic: str, _records: int) -> dict[str, float]:
    took: list[float] = []

    async def told(begun: float, delivery: Awaitable[Any]) -> None:
        await delivery
        took.append(time.perf_counter() - begun)

    cpu, start, sent = time.process_time(), time.perf_counter(), 0
    async with asyncio.TaskGroup() as group:
        while (passed := time.perf_counter() - start) < PACED_SECONDS:
            while sent < passed * A_MILLISECOND * 1000:
                begun = time.perf_counter()
                delivery = await producer.send(topic, VALUE)
                if sent % 10 == 0:
                    group.create_task(told(begun, delivery))
                sent += 1
            await asyncio.sleep(0.001)
    await producer.flush()
    return {"us": (time.process_time() - cpu) / sent * 1e6, **quantiles(took)}


WORKLOADS: Final = {"stream": stream, "single": single, "paced": paced}


def confluent_stream(case: Case, server: str, ca: str, topic: str, records: int) -> dict[str, float]:
    from confluent_kafka import Producer

    secured = {} if case.over == "PLAINTEXT" else {"security.protocol": "SSL", "ssl.ca.location": ca}
    producer = Producer({"bootstrap.servers": server, "enable.idempotence": True, "batch.size": 16384, **secured})
    producer.produce(topic, VALUE)
    producer.flush(30)
    cpu, wall = time.process_time(), time.perf_counter()
    for _ in range(records):
        while True:
            try:
                producer.produce(topic, VALUE)
                break
            except BufferError:
                producer.poll(0.01)
        producer.poll(0)
    assert producer.flush(60) == 0
    return {"us": (time.process_time() - cpu) / records * 1e6, "records/s": records / (time.perf_counter() - wall)}


async def measured(case: Case, server: str, ca: str, topic: str, records: int) -> dict[str, float]:
    async with producer_of(case, server, ca) as producer:
        for _ in range(200):
            await producer.send_and_wait(topic, VALUE)
        return await WORKLOADS[case.workload](producer, topic, records)


def one(case: Case, server: str, ca: str, topic: str, records: int) -> None:
    """Measure in this process, and print the figures."""
    if case.client == "confluent":
        found = confluent_stream(case, server, ca, topic, records)
    else:
        with asyncio.Runner(loop_factory=LOOPS[case.loop]) as runner:
            found = runner.run(measured(case, server, ca, topic, records))
    print(json.dumps(found))


def cases(workloads: list[str], builds: list[str], loops: list[str]) -> Iterator[Case]:
    for workload in workloads:
        for over in ("PLAINTEXT", "SSL", "built-in"):
            for build in builds:
                for loop in loops:
                    yield Case("aioproducer", over, workload, loop, build)
    for over in ("PLAINTEXT", "SSL") if "stream" in workloads else ():
        for client in PEERS:
            yield Case(client, over, "stream", "asyncio", "")


async def run(rounds: int, records: int, chosen: list[Case]) -> None:
    """Measure the cases in turn, and print the table after each round."""
    found: dict[Case, dict[str, list[float]]] = {}
    # with its first compiler alone the broker would be slow at TLS, and measured instead of the clients
    async with KafkaServer(security=KafkaSecurity(users={}), heap="768m", jvm_options=("-XX:TieredStopAtLevel=4",)) as kafka:
        await kafka.create_topic("cost", 1, {"retention.bytes": 2**28, "segment.bytes": 2**26})
        ca = str(kafka.certificates.ca)
        for number in range(rounds + 1):
            for case in chosen:
                server = kafka.address("PLAINTEXT" if case.over == "PLAINTEXT" else "SSL")
                words = ("-m", "tests.tools.tls_cost", "--one", json.dumps([case, server, ca, "cost", records]))
                env = os.environ | {"AIOPRODUCER_PURE": "0" if case.build == "compiled" else "1"}
                child = await asyncio.create_subprocess_exec(sys.executable, *words, env=env, stdout=asyncio.subprocess.PIPE)
                said, _ = await child.communicate()
                if child.returncode:
                    raise SystemExit(f"{case} failed")
                # the first round warms the broker's compilers
                if number:
                    for name, value in json.loads(said).items():
                        found.setdefault(case, {}).setdefault(name, []).append(value)
            if number:
                print(f"after round {number} of {rounds}:", *table(found), sep="\n", flush=True)


def table(found: dict[Case, dict[str, list[float]]]) -> Iterator[str]:
    """Yield a line for each measurement."""
    for case, of_case in found.items():
        figures = ", ".join(f"{median(values):,.3f} ({best(name, values):,.3f}) {name}" for name, values in of_case.items())
        yield f"{case.workload:7} {case.client:12} {case.build:9} {case.loop:8} {case.over:10} {figures}"


def best(name: str, values: list[float]) -> float:
    """Return the highest rate, or the least time."""
    return max(values) if name == "records/s" else min(values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--builds", default="plain,compiled")
    parser.add_argument("--loops", default="asyncio,uvloop")
    parser.add_argument("--workloads", default=",".join(WORKLOADS))
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        case, *rest = json.loads(given.one)
        one(Case(*case), *rest)
        return
    chosen = list(cases(given.workloads.split(","), given.builds.split(","), given.loops.split(",")))
    asyncio.run(run(given.rounds, given.records, chosen))


if __name__ == "__main__":
    main()
