"""Lets one program decide on what several workers wrote: all of a report becomes visible, or nothing of it.

Each worker writes its part in a transaction of its own, prepares it, and is gone. The coordinator records its decision before it commits the
first of them. So a coordinator that dies among its commits is succeeded by one that commits the same.

Run it with `python examples/prepared.py`. It needs no Kafka, as the cluster is a fake within this process.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from aioproducer import PreparedTransaction, Producer, TransactionResolver
from aioproducer.testing import FakeCluster

TOPIC = "report"
WORKERS = 4


class Death(Exception):
    """Stands for kill -9 of the coordinator."""


async def work(
    bootstrap: dict[str, Any], worker: int, report: int, *, fails: bool
) -> PreparedTransaction:
    """Write one part of a report. Returns what ends the transaction; the producer does not live on."""
    async with Producer(**bootstrap, transactional_id=f"report-{worker}") as producer:
        await producer.begin_transaction()
        for row in range(3):
            await producer.send(
                TOPIC, b"report %d, worker %d, row %d" % (report, worker, row), partition=worker % 2
            )
            if fails and row == 1:
                raise ValueError(f"worker {worker} has bad data")
        return await producer.prepare_transaction()


async def finish(resolver: TransactionResolver) -> str:
    """Commit all that the latest decision names. It may be said again by each successor."""
    decision = await resolver.committed_offset("report-decisions", TOPIC)
    if decision is None:
        return "nothing is decided"
    ends = [resolver.commit(PreparedTransaction(*each)) for each in json.loads(decision.cursor)]
    await asyncio.gather(*ends)
    return f"report {decision.number} is committed"


async def coordinate(
    bootstrap: dict[str, Any], report: int, *, failing: int | None = None, dies: bool = False
) -> str:
    """Have a report written, decide, and end the transactions of the workers. Returns what came of it."""
    works = [work(bootstrap, worker, report, fails=worker == failing) for worker in range(WORKERS)]
    done = await asyncio.gather(*works, return_exceptions=True)
    prepared = [each for each in done if isinstance(each, PreparedTransaction)]
    async with TransactionResolver(**bootstrap) as resolver:
        if len(prepared) < WORKERS:
            await asyncio.gather(*map(resolver.abort, prepared))
            return f"report {report} is aborted: {next(each for each in done if isinstance(each, Exception))}"
        # the decision: offset and text of a consumer group without consumers (the brokers take 4,096 bytes of text)
        await resolver.commit_offsets(
            "report-decisions", {(TOPIC, 0): (report, json.dumps(prepared))}
        )
        if dies:
            await resolver.commit(prepared[0])
            raise Death(f"the coordinator dies after 1 of {WORKERS} commits")
        return await finish(resolver)


async def main() -> None:
    """Write three reports: a worker fails, the coordinator dies, and all goes well."""
    async with FakeCluster() as cluster:
        cluster.create_topic(TOPIC, partitions=2)

        def visible() -> int:
            return len(cluster.values(TOPIC, isolation="read_committed"))

        bootstrap = cluster.client_options
        print(await coordinate(bootstrap, 1, failing=2), f"({visible()} rows are visible)")
        try:
            await coordinate(bootstrap, 2, dies=True)
        except Death as death:
            print(death, f"({visible()} rows are visible)")
        async with TransactionResolver(**bootstrap) as successor:
            print(await finish(successor), f"({visible()} rows are visible)")
        print(await coordinate(bootstrap, 3), f"({visible()} rows are visible)")


if __name__ == "__main__":
    asyncio.run(main())
