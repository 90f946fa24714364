"""Kills a job within its transactions, again and again, and counts what a reader of committed records finds on a real Kafka.

    python -m tests.tools.resume [--kills 50] [--records 300000] [--chunk 500]

The job writes the numbers from 0 on. Its position is part of each transaction, and it continues behind the position that Kafka has. It is
killed by SIGKILL at a random time after its first records; the last one runs to the end. Then each number must be in the
topic once, and all of one partition in order.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from collections import Counter
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from rich.progress import Progress

from aioproducer import Producer
from aioproducer.testing.kafka_server import KafkaServer

TOPIC: Final = "resumed"
PARTITIONS: Final = 3
JOB: Final = "resume"
# Seconds from a job's first records to its kill.
LIVES: Final = (0.0, 1.0)


async def job(server: str, records: int, chunk: int, pause: float) -> None:
    """Write the numbers that are left, a transaction for each `chunk` of them, with a pause of some seconds in each."""
    async with Producer(bootstrap_servers=server, transactional_id=JOB) as producer:
        position = await producer.committed_position(JOB, topic=TOPIC)
        for start in range(0 if position is None else position.number, records, chunk):
            numbers = range(start, min(start + chunk, records))
            async with producer.transaction():
                for number in numbers:
                    await producer.send(TOPIC, b"%d" % number, partition=number % PARTITIONS)
                await producer.send_position_to_transaction(JOB, numbers.stop, topic=TOPIC)
                # the kill shall meet records in the log
                await producer.flush()
                print(numbers.stop, flush=True)
                await asyncio.sleep(pause)


async def kill_again_and_again(server: str, kills: int, records: int, chunk: int) -> int:
    """Run jobs, and kill each but the last. Returns the number of jobs that ended before they were killed."""
    chance = random.Random(20)
    words = ("-m", "tests.tools.resume", "--job", server, "--records", str(records), "--chunk", str(chunk))
    # the pauses alone are longer than all lives together, so that each job is killed before it has written the last number
    pause = max(LIVES) * kills * chunk / records
    early = 0
    with Progress() as progress:
        task = progress.add_task("kills", total=kills)
        for _ in range(kills):
            child = await asyncio.create_subprocess_exec(sys.executable, *words, "--pause", str(pause), stdout=asyncio.subprocess.PIPE)
            assert child.stdout is not None
            await child.stdout.readline()
            try:
                async with asyncio.timeout(chance.uniform(*LIVES)):
                    await child.wait()
                early += 1
            except TimeoutError:
                child.kill()
                await child.wait()
            progress.advance(task)
    last = await asyncio.create_subprocess_exec(sys.executable, *words, stdout=asyncio.subprocess.DEVNULL)
    if await last.wait():
        raise SystemExit("the last job failed")
    return early


def read(server: str, isolation: str) -> list[tuple[int, int]]:
    """Return partition and number of each record that a reader finds, in the order of each log."""
    consumer: Any = Consumer(
        {
            "bootstrap.servers": server,
            "group.id": "none",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(TOPIC, number, OFFSET_BEGINNING) for number in range(PARTITIONS)])
    found: list[tuple[int, int]] = []
    ended = 0
    while ended < PARTITIONS:
        for told in consumer.consume(10_000, timeout=5):
            if told.error() is None:
                found.append((told.partition(), int(told.value())))
            else:
                ended += 1
    consumer.close()
    return found


async def main(kills: int, records: int, chunk: int) -> int:
    """Return the exit status: 0 if nothing was lost, doubled or out of order."""
    began = time.monotonic()
    async with KafkaServer() as kafka:
        await kafka.create_topic(TOPIC, PARTITIONS)
        early = await kill_again_and_again(kafka.bootstrap_servers, kills, records, chunk)
        committed = await asyncio.to_thread(read, kafka.bootstrap_servers, "read_committed")
        written = len(await asyncio.to_thread(read, kafka.bootstrap_servers, "read_uncommitted"))
    counted = Counter(number for _, number in committed)
    lost = records - len(counted.keys() & set(range(records)))
    doubled = sum(times - 1 for times in counted.values())
    in_order = all(
        numbers == sorted(numbers)
        for at in range(PARTITIONS)
        if (numbers := [number for partition, number in committed if partition == at])
    )
    print(
        f"{kills - early} kills, {records:,} records in {time.monotonic() - began:.0f} s: {lost} lost, {doubled} doubled, "
        f"{'in order' if in_order else 'OUT OF ORDER'}; {written - len(committed):,} records of killed jobs, which no reader of committed records sees"
    )
    return int(bool(lost or doubled or not in_order))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--records", type=int, default=300_000)
    parser.add_argument("--chunk", type=int, default=500)
    parser.add_argument("--job", help=argparse.SUPPRESS)
    parser.add_argument("--pause", type=float, default=0.0, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.job:
        asyncio.run(job(given.job, given.records, given.chunk, given.pause))
    else:
        raise SystemExit(asyncio.run(main(given.kills, given.records, given.chunk)))
