"""A process that forks with a live producer, which has logged in; the child logs in anew with the same config."""

import asyncio
import os

from aioproducer import Producer, ProducerConfig
from aioproducer.testing import FakeCluster, ListenerSecurity


async def main() -> None:
    security = ListenerSecurity("SASL_SSL", users={"alice": "canary-alice"})
    async with FakeCluster(security=security) as cluster:
        cluster.create_topic("orders")
        login = {
            "sasl_mechanism": "SCRAM-SHA-256",
            "sasl_username": "alice",
            "sasl_password": "canary-alice",
        }
        config = ProducerConfig(**cluster.client_options, **login)
        async with Producer(config) as producer:
            await producer.send_and_wait("orders", b"parent")
            logins = len(cluster.security.authentications)
            child = os.fork()
            if not child:
                use(producer, config)
            await asyncio.to_thread(os.waitpid, child, 0)
            print(
                "parent:",
                (await producer.send_and_wait("orders", b"parent again")).offset,
                flush=True,
            )
        done = cluster.security.authentications
        print("as many logins:", len(done) == 2 * logins > 0, flush=True)
        print(
            "connections without a login:",
            {dial.connection for dial in cluster.security.dials} - {one.connection for one in done},
            flush=True,
        )


def use(producer: Producer[bytes, bytes], config: ProducerConfig) -> None:
    """Use the parent's producer in the child, which must fail, then one of the child's own."""
    try:
        producer.send("orders", b"child").send(None)
    except BaseException as error:
        print("child, with the parent's:", type(error).__name__, flush=True)
    else:
        print("child, with the parent's: sent", flush=True)
    try:
        print("child, with its own:", asyncio.run(send(config)), flush=True)
    finally:
        os._exit(0)


async def send(config: ProducerConfig) -> int:
    async with Producer(config) as own:
        return (await own.send_and_wait("orders", b"child")).offset


asyncio.run(main())
