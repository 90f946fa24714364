"""A web service that writes to Kafka: aiohttp, and one producer for the whole application.

    pip install aiohttp
    KAFKA=localhost:9092 python examples/aiohttp_app.py
    curl localhost:8080/orders -d '{"id": 1, "customer": "ada", "total": 9.5}'

The service starts while Kafka is down. It answers an order with 201 once Kafka has the order. aiohttp cancels the handler of a client that
disconnects: the producer still sends a queued record, and drops one that was not queued.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from aiohttp import web

from aioproducer import DeliveryError, Persisted, Producer, SendTimeout

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

PRODUCER = web.AppKey("producer", Producer[bytes, bytes])


async def place(request: web.Request) -> web.Response:
    """Send an order. Orders of one customer are in one partition, in the order in which they came."""
    order = await request.read()
    try:
        customer = str(json.loads(order)["customer"])
    except (ValueError, TypeError, KeyError):
        raise web.HTTPBadRequest(text="an order is a JSON object with a customer") from None
    try:
        metadata = await request.app[PRODUCER].send_and_wait("orders", order, key=customer.encode())
    except (
        SendTimeout
    ) as error:  # Kafka is away or slower than the clients: the order was not queued, so try again
        return web.json_response(
            {"detail": str(error), "persisted": "no"}, status=503, headers={"Retry-After": "1"}
        )
    except DeliveryError as error:  # the order was queued and not acknowledged: `persisted` says whether it may be in the log
        status = 503 if error.persisted is Persisted.NO else 504
        return web.json_response(
            {"detail": str(error), "persisted": error.persisted}, status=status
        )
    return web.json_response(
        {"partition": metadata.partition, "offset": metadata.offset}, status=201
    )


def create_app(**options: Any) -> web.Application:
    """Return the application. The options go to the producer."""

    async def with_producer(app: web.Application) -> AsyncIterator[None]:
        settings: dict[str, Any] = {
            "bootstrap_servers": os.environ.get("KAFKA", "localhost:9092"),
            "max_block_ms": 2_000,
            **options,
        }
        # It goes on connecting in the background. At the end it sends the queued records, at most for `close_timeout_ms`.
        async with Producer[bytes, bytes](**settings).running(wait=False) as app[PRODUCER]:
            yield

    app = web.Application()
    app.cleanup_ctx.append(with_producer)
    app.router.add_post("/orders", place)
    return app


if __name__ == "__main__":
    web.run_app(create_app(), handler_cancellation=True)
