"""The web services of the examples, each under load, with clients that go away, and with a Kafka that is away."""

from __future__ import annotations

import asyncio
import importlib
import json
import pathlib
import resource
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import aiohttp
import httpx
import pytest
from aiohttp import web

from aioproducer import Delivery, Producer
from aioproducer.testing import FakeCluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from contextlib import AbstractAsyncContextManager

EXAMPLES = pathlib.Path(__file__).parents[1] / "examples"
CLIENTS = 2_000
# it is meant: it watches `send` alone
pytestmark = [pytest.mark.asyncio, pytest.mark.filterwarnings("ignore:Watched overrides send")]
K = TypeVar("K")
V = TypeVar("V")


class Answer(NamedTuple):
    """Holds the answer that a client got."""

    status: int
    body: dict[str, Any]
    retry_after: str | None


class Watched(Producer[K, V]):
    """A producer that notes which records began to be sent, and which were queued."""

    began: list[int]
    queued: list[int]
    made: Watched[Any, Any]

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.began, self.queued = [], []
        Watched.made = self

    async def send(self, topic: str, value: Any = None, key: Any = None, **more: Any) -> Delivery:
        number = json.loads(value)["id"]
        self.began.append(number)
        delivery = await super().send(topic, value, key, **more)
        self.queued.append(number)
        return delivery


class Service(NamedTuple):
    """A running application: its producer, and how to post to it."""

    producer: Watched[Any, Any]
    post: Callable[[int], Awaitable[Answer]]
    post_bytes: Callable[[bytes], Awaitable[int]]


def order(number: int) -> dict[str, Any]:
    return {"id": number, "customer": f"customer-{number % 50}", "total": 1.5}


@asynccontextmanager
async def of_fastapi(module: Any, **options: Any) -> AsyncIterator[Service]:
    """FastAPI's, called in the client's own task: a client that is cancelled cancels its handler."""
    app = module.create_app(**options)
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://orders", timeout=60) as client,
    ):

        async def post(number: int) -> Answer:
            got = await client.post("/orders", json=order(number))
            return Answer(got.status_code, got.json(), got.headers.get("Retry-After"))

        async def post_bytes(body: bytes) -> int:
            return (
                await client.post(
                    "/orders", content=body, headers={"content-type": "application/json"}
                )
            ).status_code

        yield Service(Watched.made, post, post_bytes)


@asynccontextmanager
async def of_aiohttp(module: Any, **options: Any) -> AsyncIterator[Service]:
    """aiohttp's, behind sockets: a client that is cancelled closes its connection, and that cancels its handler."""
    runner = web.AppRunner(module.create_app(**options), handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, backlog=CLIENTS)
    await site.start()
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    connector = aiohttp.TCPConnector(limit=min(CLIENTS, files // 4))
    try:
        async with aiohttp.ClientSession(
            f"http://127.0.0.1:{runner.addresses[0][1]}", connector=connector
        ) as client:

            async def post(number: int) -> Answer:
                async with client.post("/orders", json=order(number)) as got:
                    return Answer(got.status, await got.json(), got.headers.get("Retry-After"))

            async def post_bytes(body: bytes) -> int:
                async with client.post("/orders", data=body) as got:
                    return got.status

            yield Service(Watched.made, post, post_bytes)
    finally:
        await runner.cleanup()


SERVICES = {"fastapi_app": of_fastapi, "aiohttp_app": of_aiohttp}


@pytest.fixture(params=SERVICES)
def serve(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., AbstractAsyncContextManager[Service]]:
    """Runs an example's application, its producer watched."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    module = importlib.import_module(request.param)
    monkeypatch.setattr(module, "Producer", Watched)
    return lambda cluster, **options: SERVICES[request.param](
        module, **cluster.client_options, **options
    )


def logged(cluster: FakeCluster) -> dict[tuple[int, int], int]:
    """Which order is at which partition and offset."""
    return {
        (partition, record.offset): json.loads(record.value or b"")["id"]
        for partition in range(6)
        for record in cluster.records("orders", partition)
    }


async def until(condition: Callable[[], object]) -> None:
    """Run event-loop iterations until something holds."""
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0)


def assert_at_rest(producer: Watched[Any, Any]) -> None:
    """The producer has freed all memory, and no send waits."""
    assert producer.buffer_available == producer.config.buffer_memory
    assert "0 waiting" in repr(producer)


Serve = Any


async def test_2000_posts_at_once(serve: Serve) -> None:
    """Each is answered with its place, and is there, once; a customer's are in one partition."""
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders", partitions=6)
        async with serve(cluster, max_block_ms=60_000) as service:
            answers = await asyncio.gather(*(service.post(number) for number in range(CLIENTS)))
            assert {answer.status for answer in answers} == {201}
            places = {
                (answer.body["partition"], answer.body["offset"]): number
                for number, answer in enumerate(answers)
            }
            assert places == logged(cluster)
            assert (
                len({(number % 50, partition) for (partition, _), number in places.items()}) == 50
            )
            await until(
                lambda: service.producer.buffer_available == service.producer.config.buffer_memory
            )
            assert_at_rest(service.producer)


async def test_clients_that_go_away(serve: Serve) -> None:
    """Some clients leave while their order waits for memory: it is never logged. Some leave after it is queued: it is logged. All other
    clients are answered.
    """
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders", partitions=6)
        async with serve(
            cluster, buffer_memory=45_000, batch_size=4_000, max_block_ms=60_000
        ) as service:
            await service.post(
                CLIENTS
            )  # so that the topic is known, and what waits waits for memory
            hang, producer = cluster.hang("Produce"), service.producer
            clients = [asyncio.create_task(service.post(number)) for number in range(600)]
            await until(lambda: len(producer.began) == 601)
            before, waiting = (
                set(producer.queued) - {CLIENTS},
                set(producer.began) - set(producer.queued),
            )
            assert len(before) > 50
            assert len(waiting) > 50
            gone = {number for number in range(600) if number % 2}
            for number in gone:
                clients[number].cancel()
            await asyncio.gather(*(clients[number] for number in gone), return_exceptions=True)
            await until(
                lambda: repr(producer).endswith(
                    f" {len(waiting - gone - set(producer.queued))} waiting>"
                )
            )
            # an order behind one that left may have found memory meanwhile
            nowhere = waiting & gone - set(producer.queued)
            assert len(nowhere) > 25
            hang.release()
            answers = {
                number: await client for number, client in enumerate(clients) if number not in gone
            }
            await producer.flush()
            assert {answer.status for answer in answers.values()} == {201}
            log = logged(cluster)
            assert Counter(log.values()) == Counter(producer.queued)
            assert set(log.values()) == {CLIENTS, *range(600)} - nowhere
            assert all(
                log[answer.body["partition"], answer.body["offset"]] == number
                for number, answer in answers.items()
            )
            assert_at_rest(producer)


async def test_kafka_is_down_at_boot(serve: Serve) -> None:
    """The service boots, and says 503 and when to come again; once Kafka is up, it serves, and what was refused is nowhere."""
    async with FakeCluster() as cluster:
        cluster.create_topic("orders", partitions=6)
        await cluster.brokers[1].stop()
        async with serve(
            cluster, max_block_ms=50, reconnect_backoff_ms=1, reconnect_backoff_max_ms=10
        ) as service:
            for number in range(3):
                refused = await service.post(number)
                assert (refused.status, refused.retry_after, refused.body["persisted"]) == (
                    503,
                    "1",
                    "no",
                )
            await cluster.brokers[1].start()
            async with asyncio.timeout(30):
                while (answer := await service.post(100)).status == 503:
                    assert answer.body["persisted"] == "no"
            assert answer.status == 201
        assert list(logged(cluster).values()) == [100]


@pytest.mark.parametrize(
    ("fault", "status", "persisted"),
    [({"error": "POLICY_VIOLATION"}, 503, "no"), ({"disconnect": "after"}, 504, "maybe")],
    ids=["refused", "answer lost"],
)
async def test_an_order_that_is_not_acknowledged(
    serve: Serve, fault: dict[str, Any], status: int, persisted: str
) -> None:
    """The client is told whether it may be there, and the next one is served."""
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders", partitions=6)
        async with serve(cluster, retries=0) as service:
            cluster.fail("Produce", **fault)
            answer = await service.post(1)
            assert (answer.status, answer.body["persisted"]) == (status, persisted)
            assert (await service.post(2)).status == 201
        assert sorted(logged(cluster).values()) == ([2] if persisted == "no" else [1, 2])


@pytest.mark.parametrize("body", [b"", b"no json", b"[]", b"3", b'{"id": 1}', b"\xff"], ids=repr)
async def test_what_is_no_order(serve: Serve, body: bytes) -> None:
    """The client's mistake is said to be that, and nothing is sent."""
    async with FakeCluster(memory=True) as cluster:
        cluster.create_topic("orders", partitions=6)
        async with serve(cluster) as service:
            assert await service.post_bytes(body) in {400, 422}
        assert logged(cluster) == {}
