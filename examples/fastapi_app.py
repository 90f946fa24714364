"""A web service that writes to Kafka: FastAPI, and one producer for the whole application.

    pip install fastapi uvicorn
    KAFKA=localhost:9092 uvicorn --app-dir examples --factory fastapi_app:create_app
    curl localhost:8000/orders -H 'content-type: application/json' -d '{"id": 1, "customer": "ada", "total": 9.5}'

The service starts while Kafka is down. It answers an order with 201 once Kafka has the order. If a client disconnects before that, the
producer still sends a queued record, and drops one that was not queued.
"""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from aioproducer import DeliveryError, Persisted, Producer, SendTimeout

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

router = APIRouter()


class Order(BaseModel):
    """An order that a client posts."""

    id: int
    customer: str
    total: float


class Place(BaseModel):
    """The partition and offset of an order in Kafka."""

    partition: int
    offset: int


def producer_of(request: Request) -> Producer[bytes, bytes]:
    """Return the application's producer."""
    producer: Producer[bytes, bytes] = request.app.state.producer
    return producer


@router.post("/orders", status_code=201)
async def place(
    order: Order, producer: Annotated[Producer[bytes, bytes], Depends(producer_of)]
) -> Place:
    """Send an order. Orders of one customer are in one partition, in the order in which they came."""
    metadata = await producer.send_and_wait(
        "orders", order.model_dump_json().encode(), key=order.customer.encode()
    )
    return Place(partition=metadata.partition, offset=metadata.offset)


async def not_queued(_request: Request, error: Exception) -> JSONResponse:
    """Answer 503. Kafka is away or slower than the clients, `send` waited for `max_block_ms`, and the order was not queued: try again."""
    return JSONResponse(
        {"detail": str(error), "persisted": "no"}, status_code=503, headers={"Retry-After": "1"}
    )


async def not_acknowledged(_request: Request, error: Exception) -> JSONResponse:
    """Answer an order that was queued and not acknowledged: `persisted` says whether it may be in the log."""
    assert isinstance(error, DeliveryError)
    status = 503 if error.persisted is Persisted.NO else 504
    return JSONResponse({"detail": str(error), "persisted": error.persisted}, status_code=status)


def create_app(**options: Any) -> FastAPI:
    """Return the application. The options go to the producer."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
        settings: dict[str, Any] = {
            "bootstrap_servers": os.environ.get("KAFKA", "localhost:9092"),
            "max_block_ms": 2_000,
            **options,
        }
        # It goes on connecting in the background. At the end it sends the queued records, at most for `close_timeout_ms`.
        async with Producer[bytes, bytes](**settings).running(wait=False) as app.state.producer:
            yield

    app = FastAPI(lifespan=lifespan)
    app.include_router(router)
    app.add_exception_handler(SendTimeout, not_queued)
    app.add_exception_handler(DeliveryError, not_acknowledged)
    return app
