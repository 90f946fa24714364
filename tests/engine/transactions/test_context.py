"""`async with producer.transaction()`: which transaction its end is about. tests/scenarios has what it does with that."""

from __future__ import annotations

import pytest
from transacting import committed, transactional
from whole import jumping


@jumping
async def test_a_transaction_that_the_body_began_anew_is_not_its_own() -> None:
    """Nor is anything left to do for a body that raises after it ended its transaction."""
    async with transactional() as (cluster, producer):
        async with producer.transaction():
            await producer.commit_transaction()
            await producer.begin_transaction()
            await producer.send("orders", b"v", partition=0)
        assert committed(cluster) == []
        await producer.commit_transaction()
        assert committed(cluster) == [b"v"]
        with pytest.raises(KeyError):
            async with producer.transaction():
                await producer.abort_transaction()
                raise KeyError
