"""A process that forks with a producer.

In the child every call raises or returns at once, and the parent is not disturbed. Each test runs a program of its own, as the child
inherits everything that the test process has. `child(work)` forks, runs `work` in the child and returns the text that the child printed;
a child that takes 20 s is ended.
"""

from __future__ import annotations

import os
import subprocess
import sys
from textwrap import indent

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform does not fork")

SETUP = """
import asyncio, gc, logging, os, signal, sys, threading, time, warnings
import uvloop
from aioproducer import Producer
from aioproducer.errors import KafkaError, ProducerClosed
from aioproducer.testing import FakeCluster

warnings.simplefilter("always")
warnings.filterwarnings("ignore", "This process")  # of a fork beside threads, from Python 3.12 on
logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="LOG %(name)s %(message)s")
logging.getLogger("aioproducer").setLevel(logging.WARNING)
# in its debug mode asyncio also logs, at INFO, where a server listens, and what took 0.1 s, as it may on a busy machine
logging.getLogger("asyncio").addFilter(lambda record: record.levelno > logging.INFO and not record.msg.startswith("Executing %s took"))
FORKED = "the producer belongs to the process that was forked from; make one here"
make_loop = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}[sys.argv[1]]

def served():
    "A cluster in a thread of its own; its loop is not the producer's."
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    async def begin():
        cluster = await FakeCluster().__aenter__()
        cluster.create_topic("orders")
        return cluster
    return asyncio.run_coroutine_threadsafe(begin(), loop).result(10)

async def begin(cluster, **options):
    producer = Producer(**cluster.client_options, **options)
    await producer.start()
    await producer.send_and_wait("orders", b"parent")
    return producer

def child(work, leave=os._exit):
    reading, writing = os.pipe()
    sys.stdout.flush()
    if not os.fork():
        signal.alarm(20)
        os.dup2(writing, 1), os.dup2(writing, 2)
        try:
            work()
        except BaseException as error:
            print("UNEXPECTED", repr(error))
        sys.stdout.flush()
        leave(0)
    os.close(writing)
    with os.fdopen(reading) as told:
        out = told.read()
    os.wait()
    return out

def say(name, call):
    "Prints what a call raises, run in a loop of the child's own if it is a coroutine."
    async def run():
        called = call()
        return await called if hasattr(called, "__await__") else called
    for way in (lambda: asyncio.run(run()), *([call] if "sync" in name else [])):
        began = time.monotonic()
        try:
            told = way()
        except ProducerClosed as error:
            told = "closed" if str(error) == FORKED else error
        except BaseException as error:
            told = repr(error)
        print(name, told, "LATE" if time.monotonic() - began > 1 else "")
"""

CALLS = """
    say("send", lambda: producer.send("orders", b"v"))
    say("send_and_wait", lambda: producer.send_and_wait("orders", b"v"))
    say("sync send_nowait", lambda: producer.send_nowait("orders", b"v"))
    say("send_many", lambda: producer.send_many("orders", [b"v"]))
    say("send_columns", lambda: producer.send_columns("orders", values=None))
    say("flush", lambda: producer.flush())
    say("partitions_for", lambda: producer.partitions_for("orders"))
    say("init", lambda: producer.init_transactions("other"))
    say("begin", lambda: producer.begin_transaction())
    say("prepare", lambda: producer.prepare_transaction())
    say("commit", lambda: producer.commit_transaction())
    say("abort", lambda: producer.abort_transaction())
    say("offsets", lambda: producer.send_offsets_to_transaction({("orders", 0): 1}, "group"))
    say("position", lambda: producer.send_position_to_transaction("job", 1, topic="orders"))
    say("committed position", lambda: producer.committed_position("job", topic="orders"))
    say("sync transaction", lambda: producer.transaction())
    say("sync from_thread", lambda: producer.from_thread.send("orders", b"v"))
    say("sync door", lambda: door.send("orders", b"v"))
    say("start", lambda: producer.start())
"""

LOOKS = """
    say("stop", lambda: producer.stop())
    say("aexit", lambda: producer.__aexit__(None, None, None))
    health = producer.health()
    print("health", bool(health), health.reasons == (FORKED,))
    print("metrics", producer.metrics().number("record-send-total", topic="orders") >= 1)
    print("explain", FORKED in producer.explain(), "forked" in repr(producer), producer.buffer_available > 0)
"""


def run(body: str, loop: str) -> list[str]:
    """Run a program. Returns the lines that it printed."""
    program = f"{SETUP}{body}\nsys.stdout.flush()\nos._exit(0)\n"  # files that the parent leaves open do not count
    ended = subprocess.run(
        [sys.executable, "-c", program, loop],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stderr == ""
    return ended.stdout.splitlines()


LOOPS = pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
EXPECTED = [
    *(
        f"{name} closed "
        for name in (
            "send",
            "send_and_wait",
            *["sync send_nowait"] * 2,
            "send_many",
            "send_columns",
            "flush",
            "partitions_for",
            "init",
            "begin",
            "prepare",
            "commit",
            "abort",
            "offsets",
            "position",
            "committed position",
            *["sync transaction"] * 2,
            *["sync from_thread"] * 2,
            *["sync door"] * 2,
            "start",
        )
    ),
    "stop None ",
    "aexit None ",
    "health False True",
    "metrics True",
    "explain True True True",
]


@LOOPS
@pytest.mark.parametrize("held", ["nothing", "the door's lock"])
def test_every_call_says_so_at_once(loop: str, held: str) -> None:
    """The producer's loop runs in a thread that the child does not have.

    Each call returns at once, also if a thread of the parent held a lock.
    """
    body = f"""
cluster, loop = served(), make_loop()
threading.Thread(target=loop.run_forever, daemon=True).start()
producer = asyncio.run_coroutine_threadsafe(begin(cluster), loop).result(10)
door = producer.from_thread
def hold():
    with producer._engine.from_thread._condition:
        held.set(), free.wait()
held, free = threading.Event(), threading.Event()
if {held != "nothing"}:
    threading.Thread(target=hold, daemon=True).start()
    held.wait()
def use():
{CALLS}{LOOKS}
print(child(use), end="")
free.set()
began = time.monotonic()
print("parent", producer.from_thread.send("orders", b"parent").result(10).offset, time.monotonic() - began < 1)
print("log", cluster.values("orders"))
"""
    assert run(body, loop) == [*EXPECTED, "parent 1 True", "log [b'parent', b'parent']"]


@LOOPS
def test_a_fork_in_the_loop_itself(loop: str) -> None:
    """The fork happens in a coroutine, as with `multiprocessing` there. A thread of the child uses the producer and stops it."""
    body = f"""
def use_in_thread(producer, door):
    def use():
{indent(CALLS + LOOKS, "    ")}
    thread = threading.Thread(target=use)
    thread.start()
    thread.join()

async def main():
    producer = await begin(cluster, request_timeout_ms=5000)
    out = child(lambda: use_in_thread(producer, producer.from_thread))
    print(out, end="")
    began = time.monotonic()
    print("parent", (await producer.send_and_wait("orders", b"parent")).offset, time.monotonic() - began < 1)
    await producer.stop()
    until = time.monotonic() + 10
    while connections() and time.monotonic() < until:
        await asyncio.sleep(0)

def connections():
    return sum(len(broker.connections) for broker in cluster.brokers.values())

cluster, loop = served(), make_loop()
loop.run_until_complete(main())
print("log", cluster.values("orders"), connections())
"""
    assert run(body, loop) == [*EXPECTED, "parent 1 True", "log [b'parent', b'parent'] 0"]


@LOOPS
@pytest.mark.parametrize("is_running", [True, False])
@pytest.mark.parametrize("leave", ["os._exit", "sys.exit"])
def test_what_the_child_collects_is_the_parents(loop: str, leave: str, is_running: bool) -> None:
    """The child collects producer, deliveries, transports and loop, at any time and at the interpreter's end.

    It must write nothing, log nothing, and take nothing from the shared epoll.
    """
    body = f"""
async def more(producer):
    return [await producer.send("orders", b"lingering", partition=0) for _ in range(3)]
cluster, loop = served(), make_loop()
if {is_running}:
    threading.Thread(target=loop.run_forever, daemon=True).start()
call = (lambda coroutine: asyncio.run_coroutine_threadsafe(coroutine, loop).result(10)) if {is_running} else loop.run_until_complete
kept = {{"producer": call(begin(cluster, linger_ms=300, request_timeout_ms=5000))}}
kept["deliveries"] = call(more(kept["producer"]))
def use():
    global loop, call, more
    producer = kept.pop("producer")
    kept.clear()
    del producer, loop, call
    for _ in range(3):
        gc.collect()
print(child(use, {leave}), end="")
async def go_on(producer):
    began = time.monotonic()
    print("parent", (await producer.send_and_wait("orders", b"parent")).offset, time.monotonic() - began < 2)
    began = time.monotonic()
    await loop.run_in_executor(None, time.sleep, 0.01)  # its end wakes the loop by its pipe
    print("woken", time.monotonic() - began < 2)
    await producer.stop()
call(go_on(kept["producer"]))
print("log", cluster.values("orders"))
"""
    assert run(body, loop) == [
        "parent 4 True",
        "woken True",
        "log [b'parent', b'lingering', b'lingering', b'lingering', b'parent']",
    ]


@LOOPS
def test_a_child_that_leaves_through_the_parents_loop(loop: str) -> None:
    """A coroutine of the child raises SystemExit, so the child's `asyncio.run` cancels all tasks and runs the loop once more.

    The producer's tasks end cleanly there.
    """
    body = """
async def main():
    warnings.simplefilter("ignore")  # uvloop's own of each transport that its loop was closed with
    producer = await begin(cluster, request_timeout_ms=5000)
    sys.stdout.flush()
    pid = os.fork()
    if not pid:
        # from Python 3.14 on a child has no running loop and no current task: a program without a producer, too, logs that and hangs
        asyncios_own = sys.version_info >= (3, 14)
        logging.getLogger("asyncio").disabled = asyncios_own
        signal.alarm(1 if asyncios_own else 20)
        sys.exit(0)
    while not os.waitpid(pid, os.WNOHANG)[0]:  # no thread: the child closes the loop, and takes its wake-up pipe out of the shared epoll
        await asyncio.sleep(0.01)
    began = time.monotonic()
    print("parent", (await producer.send_and_wait("orders", b"parent")).offset, time.monotonic() - began < 2)
    await producer.stop()

cluster = served()
with asyncio.Runner(loop_factory=make_loop) as runner:
    runner.run(main())
print("log", cluster.values("orders"))
"""
    assert run(body, loop) == ["parent 1 True", "log [b'parent', b'parent']"]


@LOOPS
def test_a_fork_while_it_starts_and_before(loop: str) -> None:
    """A child may start a producer that was never started, as web servers make it before they fork."""
    body = """
cluster, loop = served(), make_loop()
threading.Thread(target=loop.run_forever, daemon=True).start()
unstarted = Producer(**cluster.client_options)
cluster.hang("Metadata", times=1)
starting = Producer(**cluster.client_options)
future = asyncio.run_coroutine_threadsafe(starting.start(), loop)
while not starting._starting_engine or not starting._starting_engine.parts.cluster.bootstrap[0].control.in_flight:
    pass
def use():
    say("send", lambda: starting.send("orders", b"v"))
    say("flush", lambda: starting.flush())
    say("start", lambda: starting.start())
    say("stop", lambda: starting.stop())
    print(starting.health().reasons == (FORKED,))
    say("own", lambda: own())
async def own():
    await unstarted.start()
    offset = (await unstarted.send_and_wait("orders", b"child")).offset
    await unstarted.stop()
    return offset
cluster.faults.clear()
print(child(use), end="")
"""
    assert run(body, loop) == [
        "send closed ",
        "flush closed ",
        "start closed ",
        "stop None ",
        "True",
        "own 0 ",
    ]


@LOOPS
def test_a_fork_with_a_resolver(loop: str) -> None:
    """In the child each call raises and `stop` returns; a resolver of the child's own works, and the parent's is not disturbed."""
    body = """
from aioproducer import TransactionResolver
FORKED = "the resolver belongs to the process that was forked from; make one here"
cluster, loop = served(), make_loop()
threading.Thread(target=loop.run_forever, daemon=True).start()
resolver = TransactionResolver(**cluster.client_options)
asyncio.run_coroutine_threadsafe(resolver.start(), loop).result(10)
def use():
    say("commit", lambda: resolver.commit(("tx", 1, 0, 2)))
    say("list", lambda: resolver.list_transactions())
    say("start", lambda: resolver.start())
    say("stop", lambda: resolver.stop())
    say("own", lambda: own())
async def own():
    async with TransactionResolver(**cluster.client_options) as mine:
        return await mine.list_transactions()
print(child(use), end="")
print(asyncio.run_coroutine_threadsafe(resolver.list_transactions(), loop).result(10))
asyncio.run_coroutine_threadsafe(resolver.stop(), loop).result(10)
"""
    assert run(body, loop) == [
        "commit closed ",
        "list closed ",
        "start closed ",
        "stop None ",
        "own [] ",
        "[]",
    ]


def test_what_a_thread_waits_for_is_not_waited_for_in_the_child() -> None:
    """A future of `from_thread` had not ended when the process forked: in the child it raises at once."""
    body = """
cluster, loop = served(), make_loop()
threading.Thread(target=loop.run_forever, daemon=True).start()
producer = asyncio.run_coroutine_threadsafe(begin(cluster, linger_ms=500), loop).result(10)
future = producer.from_thread.send("orders", b"v")
ended = producer.from_thread.send("orders", b"v", partition=0)
def use():
    say("sync result", lambda: future.result())
    say("sync exception", lambda: future.exception())
print(child(use), end="")
print(future.result(10).offset)
"""
    assert run(body, "asyncio") == [
        *["sync result closed "] * 2,
        *["sync exception closed "] * 2,
        "1",
    ]
