"""Tests of `aioproducer.net.name_resolution`: look-ups in threads of this library, of which some hang."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest
from debug_mode import without_slow_steps

from aioproducer.net import name_resolution
from aioproducer.net.name_resolution import MAX_THREADS, NameLookups, numeric_address

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LOOPBACK = socket.if_nameindex()[0]


class Resolver:
    """Answers of names; some hang until the test ends."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.threads: set[threading.Thread] = set()
        self.over = threading.Event()

    def answer(self, name: str) -> Callable[[], str]:
        return lambda: self._answer(name)

    def _answer(self, name: str) -> str:
        thread = threading.current_thread()
        assert thread.daemon
        self.asked.append(name)
        self.threads.add(thread)
        if name.startswith("hung"):
            self.over.wait(60)
        if name == "none":
            raise socket.gaierror(-2, "Name or service not known")
        return f"address of {name}"


@pytest.fixture
def resolver() -> Iterator[Resolver]:
    made = Resolver()
    yield made
    made.over.set()
    for thread in made.threads:
        thread.join(60)
        assert not thread.is_alive()


def ask(lookups: NameLookups, resolver: Resolver, name: str) -> asyncio.Task[Any]:
    return asyncio.create_task(lookups.ask("addresses", name, resolver.answer(name)))


async def begun(resolver: Resolver, *names: str) -> None:
    """Return once the look-ups of these names run."""
    while not set(names) <= set(resolver.asked):
        await asyncio.sleep(0)


async def cancelled(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    for task in tasks:
        with contextlib.suppress(asyncio.CancelledError):
            await task


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("127.0.0.1", (socket.AF_INET, ("127.0.0.1", 9092))),
        ("::1", (socket.AF_INET6, ("::1", 9092, 0, 0))),
        ("fe80::1%7", (socket.AF_INET6, ("fe80::1", 9092, 0, 7))),
        (f"fe80::1%{LOOPBACK[1]}", (socket.AF_INET6, ("fe80::1", 9092, 0, LOOPBACK[0]))),
        ("::ffff:10.0.0.1", (socket.AF_INET6, ("::ffff:10.0.0.1", 9092, 0, 0))),
        ("localhost", None),
        ("127.1", None),
        ("10.0.0.1.example", None),
        ("kafka%eth0", None),
        ("", None),
        ("a\0b", None),
    ],
)
def test_a_numeric_host_is_its_own_address(host: str, address: Any) -> None:
    assert numeric_address(host, 9092) == address


def test_a_scope_id_that_is_no_interface() -> None:
    """The call raises the system's error."""
    with pytest.raises(OSError, match=r"interface|No such device"):
        numeric_address("fe80::1%nowhere0", 9092)


@pytest.mark.asyncio
async def test_look_ups_of_one_name_are_one(resolver: Resolver) -> None:
    """Also from another thread's loop; each caller has the answer, and the next look-up is a new one."""
    lookups = NameLookups(idle_seconds=0.01)
    tasks = [ask(lookups, resolver, "hung") for _ in range(10)]
    await begun(resolver, "hung")
    elsewhere = asyncio.create_task(asyncio.to_thread(asyncio.run, lookups.ask("addresses", "hung", resolver.answer("hung"))))
    while len(lookups._running["addresses", "hung"].waiting) < 11:
        await asyncio.sleep(0)
    await cancelled(tasks.pop())
    resolver.over.set()
    assert await asyncio.gather(*tasks, elsewhere) == ["address of hung"] * 10
    assert resolver.asked == ["hung"]
    assert await ask(lookups, resolver, "hung") == "address of hung"
    assert resolver.asked == ["hung", "hung"]


@pytest.mark.asyncio
async def test_an_error_is_each_callers(resolver: Resolver) -> None:
    lookups = NameLookups(idle_seconds=0.01)
    answers = await asyncio.gather(*(ask(lookups, resolver, "none") for _ in range(3)), return_exceptions=True)
    assert [str(answer) for answer in answers] == ["[Errno -2] Name or service not known"] * 3


@pytest.mark.asyncio
async def test_names_that_hang_stop_no_other(resolver: Resolver) -> None:
    """As many hang as there may be threads, and more: each other name is looked up, and hung ones have one thread each."""
    lookups = NameLookups(idle_seconds=0.01, hung_after=0.01)
    for wave in range(3):
        names = [f"hung {wave} {number}" for number in range(MAX_THREADS)]
        hung = [ask(lookups, resolver, name) for name in names]
        await begun(resolver, *names)
        assert await ask(lookups, resolver, f"name {wave}") == f"address of name {wave}"
        again = [ask(lookups, resolver, name) for name in names]
        assert await ask(lookups, resolver, f"other {wave}") == f"address of other {wave}"
        await cancelled(*hung, *again)
    assert len(resolver.asked) == len(set(resolver.asked)) == 3 * (MAX_THREADS + 2)
    resolver.over.set()
    while lookups._running:
        await asyncio.sleep(0)
    assert await ask(lookups, resolver, "last") == "address of last"


@pytest.mark.asyncio
async def test_there_are_four_threads_at_most(resolver: Resolver) -> None:
    """The look-ups use at most four threads for many names at once, while none hangs and while all hang."""
    lookups = NameLookups(idle_seconds=0.01)
    names = [f"name {number}" for number in range(40)]
    assert await asyncio.gather(*(ask(lookups, resolver, name) for name in names)) == [f"address of {name}" for name in names]
    assert 1 <= len(resolver.threads) <= MAX_THREADS
    hung = [ask(lookups, resolver, f"hung {number}") for number in range(10)]
    await begun(resolver, *(f"hung {number}" for number in range(MAX_THREADS)))
    assert len([name for name in resolver.asked if name.startswith("hung")]) == MAX_THREADS
    waiting = lookups.describe("hung 9")
    assert waiting.startswith("look-ups by the system that have not ended: 'hung 0' (0.")
    assert lookups.describe("hung 0").startswith("its look-up by the system has taken 0.")
    await cancelled(*hung)
    resolver.over.set()
    while lookups._running:
        await asyncio.sleep(0)
    # the look-ups dropped names that no caller waited for before they began
    assert sorted(resolver.asked[40:]) == [f"hung {number}" for number in range(MAX_THREADS)]
    assert lookups.describe("hung 0") == ""


@pytest.mark.asyncio
async def test_an_idle_thread_ends_and_another_takes_its_place(resolver: Resolver) -> None:
    lookups = NameLookups(idle_seconds=0.01)
    await ask(lookups, resolver, "first")
    [thread] = resolver.threads
    await asyncio.to_thread(thread.join, 60)
    assert not thread.is_alive()
    assert lookups._threads == 0
    assert await ask(lookups, resolver, "second") == "address of second"


@pytest.mark.asyncio
async def test_an_idle_thread_is_used_again(resolver: Resolver) -> None:
    lookups = NameLookups()
    for number in range(20):
        await ask(lookups, resolver, f"name {number}")
        while not lookups._idle:
            await asyncio.sleep(0)
    assert len(resolver.threads) == 1
    with lookups._changed:
        lookups._idle_seconds = 0.01
    await ask(lookups, resolver, "last")


def test_a_loop_that_was_closed_is_not_told(resolver: Resolver) -> None:
    """The program may have gone on with another one."""
    lookups = NameLookups(idle_seconds=0.01)

    async def leave() -> None:
        task = ask(lookups, resolver, "hung")
        await begun(resolver, "hung")
        task.cancel()

    asyncio.run(leave())
    resolver.over.set()
    for thread in resolver.threads:
        thread.join(60)
    assert asyncio.run(lookups.ask("addresses", "name", resolver.answer("name"))) == "address of name"


@pytest.mark.asyncio
async def test_no_thread_can_be_started(resolver: Resolver, monkeypatch: pytest.MonkeyPatch) -> None:
    """At a limit of the system: a failure of the look-up, which is tried again."""
    lookups = NameLookups(idle_seconds=0.01)

    def refuse(_self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(OSError, match="no thread could be started to look 'name' up: can't start new thread"):
            await ask(lookups, resolver, "name")
    assert await ask(lookups, resolver, "name") == "address of name"


HANGS = """
import asyncio, os, socket, sys, threading

from aioproducer import Producer
from aioproducer.net.name_resolution import look_up

known = socket.getaddrinfo

def getaddrinfo(host, *rest, **options):
    if host.startswith("hung"):
        threading.Event().wait()
    return known("127.0.0.1", *rest, **options)

socket.getaddrinfo = getaddrinfo
"""

ENDS = (
    HANGS
    + """
async def main():
    try:
        await Producer(bootstrap_servers=[f"hung-{n}.example:9092" for n in range(6)], max_block_ms=100).start()
    except Exception as error:
        print(type(error).__name__)

asyncio.run(main())
"""
)

FORKS = (
    HANGS
    + """
def resolved():
    return asyncio.run(asyncio.wait_for(look_up("addresses", "name", lambda: socket.getaddrinfo("name", 1)), 60))[0][4]

async def main():
    tasks = [asyncio.ensure_future(look_up("addresses", f"hung-{n}", lambda: socket.getaddrinfo("hung", 1))) for n in range(4)]
    while threading.active_count() < 5:
        await asyncio.sleep(0)
    child = os.fork()
    if not child:
        asyncio.events._set_running_loop(None)
        print(resolved(), threading.active_count(), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
    for task in tasks:
        task.cancel()

asyncio.run(main())
"""
)


@pytest.mark.parametrize(("program", "printed"), [(ENDS, "BootstrapFailed"), (FORKS, "('127.0.0.1', 1) 2")], ids=["exit", "fork"])
def test_look_ups_that_hang_hold_up_no_program(program: str, printed: str) -> None:
    """Neither its end, which joins the threads of executors, nor a forked child, in which the parent's threads are not."""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout.strip(), without_slow_steps(done.stderr)) == (printed, "")


def test_the_process_has_one() -> None:
    """All producers of the process share one instance. A test that hangs it would hang the tests of others."""
    assert name_resolution.describe_lookups("nobody.example") == ""
