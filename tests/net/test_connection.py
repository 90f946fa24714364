"""Tests of `aioproducer.net.connection`, against a stream that the test plays."""

from __future__ import annotations

import asyncio
import functools
import struct
from typing import TYPE_CHECKING, Any, cast

import pytest
from jumping import jumping, now, run, settle
from scripted import Asked, ScriptedStream

from aioproducer.errors import (
    BrokerError,
    ConnectionLost,
    ProtocolError,
    RequestTimedOut,
    TransportError,
)
from aioproducer.net import connection as module
from aioproducer.net.connection import Answer, Connection
from aioproducer.wire.api import NAMES, ApiKey
from aioproducer.wire.schema import codec, message

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

TIMEOUT = 30.0


class Table:
    """A connection, its stream, and what came of it, in order."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.connection = Connection(
            "broker:9092",
            "me",
            lambda _: self.events.append("lost"),
            lambda: self.events.append("writable"),
            max_in_flight=5,
        )
        self.stream = ScriptedStream(self.connection)
        self.reported: list[dict[str, Any]] = []

    def send(
        self, name: str, timeout: float = TIMEOUT, then: Callable[[Any], object] | None = None
    ) -> Asked:
        """Ask for the topic `name`; what comes of it is written down under that name."""

        def on_answer(answer: Answer | TransportError) -> None:
            self.events.append(
                (
                    name,
                    answer
                    if isinstance(answer, TransportError)
                    else answer.decode().topics[0].name,
                )
            )
            if then is not None:
                then(answer)

        body = codec("Metadata.request", 9).encode(_request(name))
        self.connection.send(ApiKey.METADATA, 9, body, on_answer, timeout)
        return (
            self.stream.asked[-1] if self.stream.asked else Asked(ApiKey.METADATA, 9, 0, None, None)
        )

    def send_unanswered(self, name: str, then: Callable[[], object] | None = None) -> None:
        def on_written(error: object) -> None:
            self.events.append((name, error))
            if then is not None:
                then()

        self.connection.send_unanswered(
            ApiKey.METADATA, 9, codec("Metadata.request", 9).encode(_request(name)), on_written
        )

    def answer(self, asked: Asked) -> bytes:
        """The frame of a good answer."""
        return self.stream.frame(asked, _response(asked.message.topics[0].name))

    def kinds(self) -> list[Any]:
        return [
            event if isinstance(event, str) else (event[0], type(event[1])) for event in self.events
        ]


def _request(name: str) -> Any:
    return message("Metadata.request", topics=[message("Metadata.request.topics", name=name)])


def _response(name: str) -> Any:
    return message("Metadata.response", topics=[message("Metadata.response.topics", name=name)])


def in_jumping_loop(test: Callable[[Table], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Run a test with a table, in an event loop with virtual time."""

    @functools.wraps(test)
    def whole() -> None:
        async def main() -> None:
            await test(Table())

        run(main())

    del whole.__wrapped__  # type: ignore[attr-defined]  # pytest would see the table as a fixture
    return whole


# Deadlines of several


@pytest.mark.parametrize(("first", "second", "ends"), [(30.0, 5.0, 5.0), (5.0, 30.0, 5.0)])
@jumping
async def test_the_shortest_time_of_several_ends_the_connection(
    first: float, second: float, ends: float
) -> None:
    """Whichever request it belongs to, and however long an answered one before had."""
    table = Table()
    table.stream.receive(table.answer(table.send("answered", timeout=100.0)))
    began = now()
    table.send("a", timeout=first)
    table.send("b", timeout=second)
    await asyncio.sleep(ends - 0.01)
    assert table.connection.is_usable
    await asyncio.sleep(0.02)
    assert not table.connection.is_usable
    assert table.kinds()[1:] == [("a", RequestTimedOut), ("b", RequestTimedOut), "lost"]
    assert now() == pytest.approx(began + ends, abs=0.02)


# Answers


@in_jumping_loop
async def test_answers_that_came_whole_before_nonsense_are_given(table: Table) -> None:
    """In one segment: only what is behind them is lost with the connection."""
    asked = [table.send(name) for name in "abc"]
    table.stream.receive(table.answer(asked[0]) + table.answer(asked[1]) + b"HTTP/1.1 400")
    assert table.events == [("a", "a"), ("b", "b")]
    await settle()
    assert table.kinds()[2:] == [("c", ProtocolError), "lost"]
    assert "HTTP server" in str(table.events[2][1])


@pytest.mark.parametrize("kind", [bytearray, memoryview])
def test_an_answer_may_come_as_any_bytes(kind: Callable[[bytes], Any]) -> None:
    """asyncio's proactor, the loop of Windows, gives bytearrays before Python 3.12; a dialer of one's own may give views."""

    @in_jumping_loop
    async def test(table: Table) -> None:
        frames = b"".join(table.answer(table.send(name)) for name in "abc")
        for part in (frames[:2], frames[2:30], frames[30:]):
            table.stream.receive(kind(part))
        assert table.events == [("a", "a"), ("b", "b"), ("c", "c")]

    test()


class Sloppy:
    """A user's stream with methods that return other types than bool, as good as true or false."""

    def __init__(self, real: ScriptedStream) -> None:
        self._real = real

    def is_closing(self) -> int:
        return int(self._real.is_closing())

    def get_write_buffer_size(self) -> float:
        return 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


@in_jumping_loop
async def test_a_streams_answers_may_be_of_any_kind(table: Table) -> None:
    """As long as they are true or false, or numbers."""
    table.connection.connection_made(cast("Any", Sloppy(table.stream)))
    assert table.connection.is_usable is True
    assert table.connection.has_unsent is False
    table.stream.close()
    assert table.connection.is_usable is False


def test_a_stream_that_raises_after_its_loop_was_closed_raises_nothing_here() -> None:
    """A connection may be asked by a producer that is dropped after its loop was closed."""

    async def main() -> Connection:
        table = Table()

        class Failing(Sloppy):
            def is_closing(self) -> int:
                raise RuntimeError("the handle is closed")

        table.connection.connection_made(cast("Any", Failing(table.stream)))
        return table.connection

    connection = run(main())
    assert connection.is_usable is False
    assert "the handle is closed" in str(connection.cause)


@in_jumping_loop
async def test_an_answer_may_lead_to_the_next_request(table: Table) -> None:
    """From within its callback."""
    asked = table.send("a", then=lambda _: table.send("b"))
    table.stream.receive(table.answer(asked))
    assert [each.message.topics[0].name for each in table.stream.asked] == ["a", "b"]
    table.stream.receive(table.answer(table.stream.asked[1]))
    assert table.events == [("a", "a"), ("b", "b")]


@in_jumping_loop
async def test_request_numbers_begin_again(table: Table) -> None:
    """Before Kafka's reserved ones, and never below zero."""
    table.connection._correlation_id = module._CORRELATION_LIMIT - 2
    asked = [table.send(name) for name in "abc"]
    assert [each.correlation_id for each in asked] == [2**31 - 9, 0, 1]
    table.stream.receive(b"".join(table.answer(each) for each in asked))
    assert table.events == [("a", "a"), ("b", "b"), ("c", "c")]


@in_jumping_loop
async def test_a_cancelled_question_leaves_the_connection_alone(table: Table) -> None:
    """Its answer is dropped when it comes, and so is a failure."""
    tasks = [
        asyncio.ensure_future(table.connection.ask(ApiKey.METADATA, 9, _request(name), TIMEOUT))
        for name in "abc"
    ]
    await settle()
    tasks[0].cancel()
    tasks[2].cancel()
    await settle()
    table.stream.receive(table.answer(table.stream.asked[0]) + table.answer(table.stream.asked[1]))
    assert (await tasks[1]).decode().topics[0].name == "b"
    assert table.connection.is_usable
    table.stream.lose()


# Invalid answers


@in_jumping_loop
async def test_a_wrong_number_ends_the_connection(table: Table) -> None:
    """The connection cannot assign the answer to a request, so it fails every request, oldest first."""
    asked = [table.send(name) for name in "ab"]
    table.stream.receive(table.answer(asked[1]) + table.answer(asked[0]))
    await settle()
    assert table.kinds() == [("a", ProtocolError), ("b", ProtocolError), "lost"]
    assert (
        f"answered request {asked[1].correlation_id}, but {asked[0].correlation_id} is the oldest"
        in str(table.events[0][1])
    )
    assert table.stream.aborted


@in_jumping_loop
async def test_an_answer_that_nobody_asked_for(table: Table) -> None:
    """Ends the connection too."""
    asked = table.send("a")
    table.stream.receive(table.answer(asked) + table.answer(asked))
    await settle()
    assert table.events == [("a", "a"), "lost"]
    assert table.stream.aborted


@pytest.mark.parametrize(
    "frame",
    [
        *[
            struct.pack(">i", size) + b"rest"
            for size in (-1, 2**31 - 1, int.from_bytes(b"HTTP", "big"))
        ],
        # shorter than the header, and ended in the header's tags
        *[struct.pack(">i", len(frame)) + frame for frame in (b"", b"\0", b"\0\0\0", b"\0\0\0\1")],
    ],
)
def test_a_frame_that_no_broker_sends(frame: bytes) -> None:
    """Nothing is allocated for its size; its request fails with the others."""

    @in_jumping_loop
    async def test(table: Table) -> None:
        assert table.send("a").correlation_id == 1
        table.stream.receive(frame)
        assert not table.connection.is_usable
        await settle()
        assert table.kinds() == [("a", ProtocolError), "lost"]

    test()


@in_jumping_loop
async def test_a_body_that_does_not_decode_ends_the_connection(table: Table) -> None:
    """Its own request has its answer, which is none; those behind it fail, and what came behind it is not looked at."""
    asked = [table.send("a"), table.send("b")]
    garbage = struct.pack(">ii", 9, asked[0].correlation_id) + b"\0\xff\xff\xff\xff"
    table.stream.receive(garbage + table.answer(asked[1]))
    await settle()
    assert table.kinds() == [("b", ProtocolError), "lost"]
    assert table.stream.aborted


@jumping
async def test_a_callback_with_a_bug_harms_nobody_else() -> None:
    """The loop is told of it; the connection goes on."""
    told: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: told.append(context["exception"])
    )
    table = Table()
    bug = KeyError("bug")

    def raise_bug(_: object) -> None:
        raise bug

    asked = [
        table.send("a", then=raise_bug),
        table.send("b"),
        table.send("c", then=raise_bug),
        table.send("d"),
    ]
    table.stream.receive(table.answer(asked[0]) + table.answer(asked[1]))
    assert table.events == [("a", "a"), ("b", "b")]
    assert told == [bug]
    assert table.connection.is_usable
    table.stream.lose()
    assert table.kinds()[2:] == [("c", ConnectionLost), ("d", ConnectionLost), "lost"]
    assert told == [bug, bug]


# Time


@in_jumping_loop
async def test_a_request_without_an_answer_ends_the_connection(table: Table) -> None:
    """A broker answers in order, so nothing behind it can come sooner; all fail with one cause, oldest first."""
    began = now()
    table.send("a")
    await asyncio.sleep(10)
    table.send("b")
    await asyncio.sleep(TIMEOUT - 10 - 0.1)
    assert table.events == []
    await asyncio.sleep(0.2)
    assert now() - began == pytest.approx(TIMEOUT, abs=0.2)
    assert table.kinds() == [("a", RequestTimedOut), ("b", RequestTimedOut), "lost"]
    assert table.events[0][1] is table.events[1][1]
    assert "Metadata" in str(table.events[0][1])


@in_jumping_loop
async def test_an_answered_request_times_nobody_out(table: Table) -> None:
    """The next one has its own time, from when it was sent."""
    asked = table.send("a")
    await asyncio.sleep(TIMEOUT - 1)
    later = table.send("b")
    table.stream.receive(table.answer(asked))
    await asyncio.sleep(TIMEOUT - 2)
    assert table.events == [("a", "a")]
    table.stream.receive(table.answer(later))
    await asyncio.sleep(10 * TIMEOUT)
    assert table.events == [("a", "a"), ("b", "b")]
    assert table.connection.is_usable
    table.send("c")
    await asyncio.sleep(TIMEOUT - 0.1)
    assert table.connection.in_flight == 1
    await asyncio.sleep(0.2)
    assert table.connection.in_flight == 0


@in_jumping_loop
async def test_an_answer_in_the_iterations_after_the_deadline_is_in_time(table: Table) -> None:
    """The loop may have been held, and reads the socket then."""
    asked, loop = table.send("a", timeout=1.0), asyncio.get_running_loop()
    loop.call_later(1.0, lambda: loop.call_soon(lambda: table.stream.receive(table.answer(asked))))
    await asyncio.sleep(1.0)
    await settle()
    assert table.events == [("a", "a")]


@in_jumping_loop
async def test_the_next_request_times_out_in_its_own_time(table: Table) -> None:
    """Though the clock was set for one that was answered."""
    asked = table.send("a")
    await asyncio.sleep(TIMEOUT - 1)
    table.send("b")
    table.stream.receive(table.answer(asked))
    await asyncio.sleep(TIMEOUT - 0.1)
    assert table.events == [("a", "a")]
    await asyncio.sleep(0.2)
    assert table.kinds() == [("a", str), ("b", RequestTimedOut), "lost"]


# The end


@pytest.mark.parametrize(
    "error", [None, ConnectionResetError("reset by peer")], ids=["closed", "reset"]
)
def test_a_lost_connection_fails_what_is_pending(error: Exception | None) -> None:
    """The connection fails its requests with one cause, oldest first. Then it notifies its owner once."""

    @in_jumping_loop
    async def test(table: Table) -> None:
        for name in "abc":
            table.send(name)
        table.stream.lose(error)
        assert table.kinds() == [
            ("a", ConnectionLost),
            ("b", ConnectionLost),
            ("c", ConnectionLost),
            "lost",
        ]
        cause = table.events[0][1]
        assert cause.__cause__ is error
        assert str(cause) == "broker:9092 closed the connection" + (
            ": reset by peer" if error else ""
        )
        assert (
            table.connection.is_lost,
            table.connection.is_usable,
            table.connection.in_flight,
        ) == (True, False, 0)

    test()


@in_jumping_loop
async def test_a_broker_that_closes(table: Table) -> None:
    """An answer that arrived before the close counts. Half a frame is dropped."""
    asked = [table.send(name) for name in "ab"]
    table.stream.receive(table.answer(asked[0]) + table.answer(asked[1])[:-1])
    table.stream.end()
    assert not table.connection.is_usable
    await settle()
    assert table.kinds() == [("a", str), ("b", ConnectionLost), "lost"]


@in_jumping_loop
async def test_an_abort_keeps_its_cause(table: Table) -> None:
    """The first one; what comes in afterwards is not looked at."""
    asked = table.send("a")
    first = ConnectionLost("first")
    table.connection.abort(first)
    table.connection.abort(ConnectionLost("second"))
    table.stream.receive(table.answer(asked))
    await settle()
    assert table.events == [("a", first), "lost"]


@in_jumping_loop
async def test_a_close_lets_what_was_written_leave(table: Table) -> None:
    """It is no abort; what has no answer yet fails."""
    table.send("a")
    table.connection.close()
    table.connection.close()
    assert (table.connection.is_usable, table.stream.aborted) == (False, False)
    await settle()
    assert table.kinds() == [("a", ConnectionLost), "lost"]
    assert "closed here" in str(table.events[0][1])


@pytest.mark.parametrize("how", ["lost", "aborted", "closed"])
def test_a_request_after_the_end(how: str) -> None:
    """It fails with what ended the connection, and never waits: not in the call, but soon. Nothing is said to be written."""

    @in_jumping_loop
    async def test(table: Table) -> None:
        table.stream.lingers = True
        end = {
            "lost": table.stream.lose,
            "aborted": lambda: table.connection.abort(ConnectionLost("aborted")),
            "closed": table.connection.close,
        }
        end[how]()
        table.events.clear()
        table.send("a")
        table.send_unanswered("b")
        assert table.events == []
        await settle()
        assert [event for event in table.kinds() if event != "lost"] == [
            ("a", ConnectionLost),
            ("b", ConnectionLost),
        ]
        assert table.stream.asked == []
        with pytest.raises(ConnectionLost):
            await table.connection.ask(ApiKey.METADATA, 9, _request("a"), TIMEOUT)

    test()


# Requests without an answer, and a full buffer


@in_jumping_loop
async def test_what_gets_no_answer_is_done_when_it_is_written(table: Table) -> None:
    """Later in the loop, never within the call."""
    table.send_unanswered("a")
    assert table.events == []
    assert len(table.stream.asked) == 1
    await settle()
    assert table.events == [("a", None)]
    assert table.connection.in_flight == 0


@in_jumping_loop
async def test_a_full_buffer_holds_what_gets_no_answer(table: Table) -> None:
    """The connection ends unanswered requests only once their bytes have left, so that memory is not given back too early.

    They end in order, then the owner is notified.
    """
    table.connection.pause_writing()
    assert table.connection.is_paused
    table.send_unanswered("a")
    table.send_unanswered("b")
    await settle()
    assert table.events == []
    table.connection.resume_writing()
    assert not table.connection.is_paused
    assert table.events == [("a", None), ("b", None), "writable"]


@in_jumping_loop
async def test_a_buffer_that_is_full_again(table: Table) -> None:
    """The remaining requests wait until the buffer has space again."""
    table.connection.pause_writing()
    table.send_unanswered("a", then=table.connection.pause_writing)
    table.send_unanswered("b")
    table.connection.resume_writing()
    assert table.events == [("a", None), "writable"]
    table.connection.resume_writing()
    assert table.events == [("a", None), "writable", ("b", None), "writable"]


@in_jumping_loop
async def test_a_lost_connection_fails_what_was_not_written(table: Table) -> None:
    """Behind what waits for answers."""
    table.connection.pause_writing()
    table.send_unanswered("a")
    table.send("b")
    table.stream.lose()
    assert table.kinds() == [("b", ConnectionLost), ("a", ConnectionLost), "lost"]


# Versions


@in_jumping_loop
async def test_the_highest_version_that_both_know(table: Table) -> None:
    """Or an error that says what the broker offers."""
    table.connection.learn_versions({ApiKey.METADATA: (0, 7), ApiKey.PRODUCE: (100, 101)})
    assert table.connection.version_of(ApiKey.METADATA) == 7
    with pytest.raises(BrokerError, match=r"offers no Produce of a version .*\(100, 101\)"):
        table.connection.version_of(ApiKey.PRODUCE)
    with pytest.raises(BrokerError, match="offers no Fetch$"):
        table.connection.version_of(ApiKey.FETCH)
    table.connection.learn_versions({ApiKey.METADATA: (0, 5)})
    assert table.connection.version_of(ApiKey.METADATA) == 5


@in_jumping_loop
async def test_an_answer_knows_its_own_version(table: Table) -> None:
    """It may have been asked in another than the next one is."""
    answers: list[Answer] = []
    for version in (1, 12):
        body = codec("Metadata.request", version).encode(_request("a"))
        table.connection.send(ApiKey.METADATA, version, body, answers.append, TIMEOUT)  # type: ignore[arg-type]
    for asked in table.stream.asked:
        table.stream.answer(asked, _response("a"))
    assert [(answer.version, answer.decode().topics[0].name) for answer in answers] == [
        (1, "a"),
        (12, "a"),
    ]
    assert {NAMES[answer.key] for answer in answers} == {"Metadata"}
