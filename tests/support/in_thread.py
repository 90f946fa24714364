"""A fake cluster in a thread, for tests that block their own thread."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from aioproducer.testing import FakeCluster

__all__ = ["PATIENCE", "ClusterInThread"]

PATIENCE = 30.0


class ClusterInThread:
    """A fake cluster with a loop of its own: the test's thread is that of a task, and may block."""

    def __init__(self, **options: Any) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever)
        self._thread.start()
        self.cluster = FakeCluster(**options)
        self.run(self.cluster.__aenter__())
        self.cluster.create_topic("orders", partitions=2)

    def run(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(PATIENCE)

    @property
    def options(self) -> dict[str, str]:
        return {"bootstrap.servers": self.cluster.bootstrap_servers}

    def close(self) -> None:
        self.run(self.cluster.__aexit__(None, None, None))
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()
