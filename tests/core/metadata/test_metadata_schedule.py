"""Tests of `aioproducer.core.metadata.metadata_schedule`: KIP-526's rule, case by case."""

from __future__ import annotations

from aioproducer.core.metadata.metadata_schedule import MOST, MetadataSchedule, Question

MAX_AGE = 300.0
HALF = MAX_AGE / 2


class Table:
    """The rule, with all topics needed that it is told of."""

    def __init__(self) -> None:
        self.needed: set[str] = set()
        self.rule = MetadataSchedule(MAX_AGE)
        self.rule.answered(0.0)

    def told(self, now: float, *names: str) -> None:
        self.needed.update(names)
        for name in names:
            self.rule.told(name, now)

    def other(self, now: float) -> list[str] | None:
        """Return the topics of the next request for known topics, and answer that request at once."""
        question = self.rule.next_other(now, self.needed.__contains__)
        return None if question is None else self.end(question)

    def new(self, now: float) -> list[str] | None:
        question = self.rule.next_new(now)
        return None if question is None else self.end(question)

    def end(self, question: Question, *, is_answered: bool = True) -> list[str]:
        self.rule.ended(question, is_answered=is_answered)
        return question.topics


def names(first: int, last: int) -> list[str]:
    return [f"t{number}" for number in range(first, last)]


# T: urgent


def test_new_topics_that_come_meanwhile_share_the_next() -> None:
    """New topics wait while a request is in flight, unless they fill the next request."""
    table = Table()
    table.rule.want("a")
    question = table.rule.next_new(0.0)
    assert question is not None
    for name in ("b", "c"):
        table.rule.want(name)
    assert table.rule.next_new(0.0) is None
    table.end(question)
    assert table.new(0.0) == ["b", "c"]


def test_what_changed_is_asked_for_while_it_is_needed() -> None:
    """Each once."""
    table = Table()
    table.told(0.0, "a", "b", "c")
    table.rule.request_update(["b", "gone", "b"])
    assert table.rule.due_at() == 0.0
    assert table.other(1.0) == ["b"]
    assert table.other(1.0) is None
    assert table.rule.due_at() > 1.0


def test_what_is_old_is_asked_for_whole() -> None:
    """However many they are; those that are younger than half of that not."""
    table = Table()
    table.told(0.0, *names(0, 100))
    table.told(200.0, *names(100, 130))
    assert table.rule.due_at() == HALF
    assert table.other(HALF) == names(0, 20)
    assert table.rule.target == 20
    table.rule.request_update(names(100, 101))
    question = table.rule.next_other(MAX_AGE, table.needed.__contains__)
    assert question is not None
    assert question.topics == [*names(100, 101), *names(0, 100)]
    assert question.urged == {"t100"}


def test_an_urgent_question_is_asked_again_if_nobody_answers() -> None:
    """New ones too, but not what only filled it."""
    table = Table()
    table.told(0.0, "ripe")
    table.rule.want("a")
    table.needed.add("a")
    question = table.rule.next_new(HALF)
    assert question is not None
    assert question.topics == ["a", "ripe"]
    table.end(question, is_answered=False)
    assert table.rule.next_new(HALF) is None
    table.rule.told("ripe", HALF)
    assert table.other(HALF) == ["a"]


# U: not urgent


def test_what_is_half_as_old_fills_questions_the_oldest_first() -> None:
    """Up to the target, new ones' and others'."""
    table = Table()
    table.told(0.0, *names(0, 15))
    table.told(10.0, *names(15, 30))
    table.rule.want("a")
    assert table.new(10.0 + HALF) == ["a", *names(0, 19)]
    table.rule.request_update(["t25"])
    assert table.other(10.0 + HALF) == ["t25", *names(0, 19)]
    table.rule.request_update(names(5, 30))
    assert table.other(10.0 + HALF) == names(5, 30), "there is no room for others"


def test_they_have_a_question_of_their_own_when_they_fill_it() -> None:
    """Not before; and each only once they are half as old again."""
    table = Table()
    table.told(0.0, *names(0, 19))
    assert table.rule.due_at() == MAX_AGE
    assert table.other(HALF) is None
    table.told(5.0, "t19")
    assert table.rule.due_at() == 5.0 + HALF
    assert table.other(4.0 + HALF) is None
    assert table.other(5.0 + HALF) == names(0, 20)


def test_the_target_is_what_ten_seconds_of_refresh_need() -> None:
    """At least 20 topics, at most what one request takes."""
    table = Table()
    assert table.rule.target == 20
    table.told(0.0, *names(0, 6000))
    assert table.rule.target == 200
    table.told(0.0, *names(6000, 60_000))
    assert table.rule.target == MOST


def test_a_steady_refresh_is_spread() -> None:
    """6,000 topics: each is asked for between half of `max_age` and all of it, at most the target at a time."""
    table = Table()
    table.told(0.0, *names(0, 6000))
    sizes = []
    ages = []
    told = dict.fromkeys(names(0, 6000), 0.0)
    for eighth in range(16 * int(MAX_AGE)):  # no fraction is lost of these
        now = eighth / 8
        asked = table.other(now)
        if asked is not None:
            sizes.append(len(asked))
            ages += [now - told[name] for name in asked]
            told.update(dict.fromkeys(asked, now))
            table.told(now, *asked)
            table.rule.answered(now)
    assert max(sizes) <= 200
    assert min(ages) >= HALF
    assert max(ages) <= MAX_AGE


# One question at a time
