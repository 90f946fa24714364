"""Transfers between accounts: readers see both records of a transfer, or neither.

Run it with `python examples/transactions.py`. It needs no Kafka, as the cluster is a fake within this process.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from aioproducer import Producer, ProducerFenced, TransactionAbortable
from aioproducer.testing import FakeCluster

TOPIC = "accounts"


class InsufficientFunds(Exception):
    """The account has too little money; raised in the middle of a transfer."""


async def transfer(
    producer: Producer[bytes, bytes],
    balances: dict[str, int],
    source: str,
    target: str,
    amount: int,
) -> None:
    """Take and give in one transaction. Any exception of the body aborts the transaction."""
    async with producer.transaction():
        await producer.send(TOPIC, b"%+d" % -amount, key=source.encode())
        if balances[source] < amount:
            await (
                producer.flush()
            )  # so that the log has a record of the aborted transaction, which readers never see
            raise InsufficientFunds(source)
        await producer.send(TOPIC, b"%+d" % amount, key=target.encode())
    balances[source] -= amount  # the transaction was committed
    balances[target] += amount


async def run(bootstrap: dict[str, Any], fail_next: object = None) -> list[str]:
    """Make some transfers, and print the result of each."""
    told: list[str] = []
    balances = {"alice": 100, "bob": 0, "carol": 0}
    async with Producer(**bootstrap, transactional_id="bank") as producer:
        await transfer(producer, balances, "alice", "bob", 70)
        told.append("alice gave bob 70")
        try:
            await transfer(producer, balances, "alice", "carol", 70)
        except InsufficientFunds as error:
            told.append(f"aborted: {error} has not enough")
        if callable(fail_next):  # let the brokers refuse a record
            fail_next()
            try:
                await transfer(producer, balances, "bob", "carol", 20)
            except TransactionAbortable as error:  # a record failed, so the transaction was aborted; the transfer may be tried again
                told.append(f"aborted: {error.reason.partition(': ')[2]}")
        await transfer(producer, balances, "bob", "carol", 20)
        told.append("bob gave carol 20")
        async with Producer(
            **bootstrap, transactional_id="bank"
        ):  # the same bank, started again while the old one still runs
            try:
                await transfer(producer, balances, "bob", "carol", 1)
            except ProducerFenced as error:  # fatal: this producer can do no more
                told.append(f"fenced: {error.hint}")
    return told


async def main() -> None:
    """Run against the fake cluster, or against the brokers of the first argument."""
    if len(sys.argv) > 1:
        print("\n".join(await run({"bootstrap_servers": sys.argv[1]})))
        return
    async with FakeCluster() as cluster:
        cluster.create_topic(TOPIC)
        print(
            "\n".join(
                await run(
                    cluster.client_options, lambda: cluster.fail("Produce", "POLICY_VIOLATION")
                )
            )
        )
        for isolation in ("read_uncommitted", "read_committed"):
            records = cluster.records(TOPIC, isolation=isolation)
            shown = [
                f"{(one.key or b'').decode()} {(one.value or b'').decode()}" for one in records
            ]
            print(f"{isolation}: {', '.join(shown)}")


if __name__ == "__main__":
    asyncio.run(main())
