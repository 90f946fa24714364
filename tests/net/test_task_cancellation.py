"""Tests of `aioproducer.net.task_cancellation`."""

from __future__ import annotations

import asyncio

import pytest
from whole import jumping

from aioproducer.net.task_cancellation import is_cancelled, without_generator_exit


@jumping
async def test_a_cancelled_error_of_an_awaited_task_is_no_cancellation() -> None:
    awaited = asyncio.ensure_future(asyncio.sleep(10))
    awaited.cancel()
    with pytest.raises(asyncio.CancelledError):
        await awaited
    assert not is_cancelled()


@jumping
async def test_a_generator_exit_of_a_users_coroutine_is_a_runtime_error() -> None:
    async def dial() -> None:
        raise GeneratorExit

    with pytest.raises(RuntimeError, match=r"^the dialer raised GeneratorExit$") as caught:
        await without_generator_exit("the dialer", dial())
    assert isinstance(caught.value.__cause__, GeneratorExit)


@jumping
async def test_a_result_and_other_errors_pass() -> None:
    async def dial(host: str) -> str:
        if not host:
            raise LookupError
        return host

    assert await without_generator_exit("the dialer", dial("kafka")) == "kafka"
    with pytest.raises(LookupError):
        await without_generator_exit("the dialer", dial(""))


def test_the_end_of_a_task_whose_loop_was_closed_stays_a_generator_exit() -> None:
    """The garbage collector closes such a coroutine, which may also happen while a task of another loop runs."""
    seen: list[BaseException] = []

    async def dial() -> None:
        await asyncio.get_running_loop().create_future()

    async def run() -> None:
        try:
            await without_generator_exit("the dialer", dial())
        except BaseException as error:
            seen.append(error)
            raise

    async def close() -> None:
        coroutines.pop().close()

    coroutines = [run(), run()]
    loop = asyncio.new_event_loop()
    tasks = [loop.create_task(coroutine) for coroutine in coroutines]
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    coroutines.pop().close()
    asyncio.run(close())
    assert [type(error) for error in seen] == [GeneratorExit, GeneratorExit]
    for task in tasks:
        task._log_destroy_pending = False  # type: ignore[attr-defined]
