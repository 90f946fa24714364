# What the blocks of the pages take for granted, by name: the reader's own program has it. `python -m tests.tools.doc_blocks`.

import asyncio as asyncio
import logging
from collections.abc import AsyncGenerator as AsyncGenerator
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager as asynccontextmanager
from typing import Any

import pytest as pytest
from fastapi import FastAPI as FastAPI
from fastapi.responses import JSONResponse as JSONResponse
from pyspark.sql import DataFrame as DataFrame
from pyspark.sql import SparkSession

import aioproducer as aioproducer
from aioproducer import PreparedTransaction, Producer
from aioproducer.testing import FakeCluster as FakeCluster

log: logging.Logger
producer: Producer
servers: str

# delivery.md
order: bytes
later: asyncio.Queue[bytes]

# metrics.md
app: FastAPI

# performance.md
pyarrow: Any

# security.md
class IdentityProvider:
    def fetch(self, audience: str) -> str: ...

identity_provider: IdentityProvider

# serializers.md
async def registry_lookup(subject: str) -> int: ...

# spark.md
spark: SparkSession
df: DataFrame
stream: DataFrame
kafka: dict[str, str]

# transactions.md
class ConsumerRecord:
    topic: str
    partition: int
    offset: int
    key: bytes
    value: bytes

records: list[ConsumerRecord]
group_id: str
generation_id: int
member_id: str
number: int
everything: list[PreparedTransaction]

def invoice(order: bytes) -> bytes: ...
def read_source(start: int) -> AsyncIterator[tuple[int, list[bytes]]]: ...
def write(producer: Producer) -> Awaitable[None]: ...
def record_the_decision(everything: list[PreparedTransaction]) -> Awaitable[None]: ...
