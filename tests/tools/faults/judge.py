"""Compares a row's expected results with its real ones. The producer survives if `complaints` returns none."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from aioproducer.errors import BrokerError, DeliveryError

from .security import SECRET
from .stage import GRACE, TOPIC

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .row import Holds
    from .stage import Called, Played, Sent

__all__ = ["complaints"]


def complaints(played: Played) -> list[str]:
    """Return the rules that do not hold."""
    holds = played.row.holds
    secrets = list(_of_secrets(played))
    if not holds.starts:
        return [*secrets, *_of_start(played), *_of_counts(played)]
    if played.start_error is not None:
        return [*secrets, f"start failed: {_text(played.start_error)}"]
    off_script = list(_of_calls(played))
    if off_script:
        return off_script
    found = [
        *secrets,
        *_of_ends(played),
        *_of_log(played, holds),
        *_of_transactions(played),
        *_of_the_rest(played),
        *_of_starting(played),
        *_of_failures(_failures(played), holds),
        *_of_requests(played, holds),
    ]
    if holds.fired:
        found += [f"did not happen: {rule}" for rule in played.cluster.faults.unfired()]
    return found


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _names(error: BaseException | None) -> Iterator[str]:
    """Return an error's names, and those of its causes."""
    while error is not None:
        yield type(error).__name__
        if isinstance(error, BrokerError):
            yield error.name
        error = error.__cause__


def _of_start(played: Played) -> Iterator[str]:
    if played.start_error is None:
        yield "it started"
    else:
        yield from (
            f"the error does not say {word!r}: {played.start_error}"
            for word in played.row.holds.says
            if word not in str(played.start_error)
        )
        yield from _of_starting(played)


def _of_starting(played: Played) -> Iterator[str]:
    limits = played.row.holds.starts_within
    if limits is not None and not limits[0] <= played.started_in <= limits[1]:
        yield f"the start took {played.started_in:.1f} s"


def _of_secrets(played: Played) -> Iterator[str]:
    """Yield a complaint if the text of an error has a secret of the row."""
    errors = [
        played.start_error,
        played.stop_error,
        *(each.error for each in (*played.sent, *played.afterwards, *played.calls)),
    ]
    if any(SECRET in f"{_text(error)} {error.__cause__}" for error in errors if error is not None):
        yield "an error tells a secret"
    if played.protocol == "SASL_SSL":
        plain = {
            number
            for number, broker in played.cluster.brokers.items()
            if not broker.security.listener.has_tls
        }
        if any(
            request.broker in plain and request.api.startswith("Sasl")
            for request in played.cluster.requests()
        ):
            yield "it logs in without TLS"


def _of_counts(played: Played) -> Iterator[str]:
    for api, most in played.row.holds.asks.items():
        if played.asked[api] > most:
            yield f"{played.asked[api]} {api} requests"
    if played.row.holds.dials is not None and played.dials > played.row.holds.dials:
        yield f"{played.dials} connections"


def _of_calls(played: Played) -> Iterator[str]:
    for call in played.calls:
        if call.error is None:
            if call.fails:
                yield f"{call.name} did not fail"
        elif not call.fails:
            yield f"{call.name} failed: {_text(call.error)}"
        elif call.fails not in _names(call.error):
            yield f"{call.name} failed as {' from '.join(_names(call.error))}, not as {call.fails}: {call.error}"


def _of_ends(played: Played) -> Iterator[str]:
    limit = played.row.options.get("delivery_timeout_ms", 120_000) / 1000 + GRACE
    pending = [record for record in played.sent if record.ended is None]
    if pending:
        yield f"{len(pending)} of {len(played.sent)} had not ended after {played.waited_for:g} s"
    late = [
        record
        for record in played.sent
        if record.ended is not None and record.ended - record.at > limit
    ]
    if late:
        yield f"{len(late)} ended later than delivery_timeout_ms and {GRACE:g} s"
    if played.row.holds.within and not pending:
        least, most = played.row.holds.within
        took = max(0.0, *((record.ended or 0) - played.done_at for record in played.sent))
        if not least <= took <= most:
            yield f"it took {took:.1f} s"
    if played.row.holds.lasts:
        least, most = played.row.holds.lasts
        if not least <= played.lasted <= most:
            yield f"it lasted {played.lasted:.1f} s"


def _of_log(played: Played, holds: Holds) -> Iterator[str]:
    acked = [record for record in played.sent if record.is_acked]
    wanted = {"all": len(played.sent), "none": 0, "any": len(acked)}.get(
        str(holds.acked), holds.acked
    )
    if len(acked) != wanted:
        error = next(
            (_text(record.error) for record in played.sent if record.error is not None), ""
        )
        yield f"{len(acked)} of {len(played.sent)} acknowledged" + (f": {error}" if error else "")
    failed = [record for record in played.afterwards if not record.is_acked]
    if failed:
        yield f"{len(failed)} sent afterwards were not acknowledged"
    if not any(topic.name == TOPIC for topic in played.cluster.topics):
        return
    logged = {
        part: {record.offset: record.value for record in played.cluster.records(TOPIC, part)}
        for part in _partitions(played)
    }
    everything = [value for values in logged.values() for value in values.values()]
    standing = [
        record for record in acked + played.afterwards if record.is_acked and not record.is_gone
    ]
    yield from _of_each(standing, logged, everything)
    lies = [
        record
        for record in played.sent
        if isinstance(record.error, DeliveryError)
        and record.error.persisted == "no"
        and record.value in everything
    ]
    if lies:
        yield f"{len(lies)} failed for certain and are in the log"
    twice = [value for value, count in Counter(everything).items() if count > 1]
    if twice and not holds.duplicates:
        yield f"{len(twice)} are in the log twice"
    if holds.in_order and not all(
        _is_in_order(values.values(), played.sent + played.afterwards) for values in logged.values()
    ):
        yield "the log has them in another order"


def _partitions(played: Played) -> Iterable[int]:
    return played.cluster.end_offsets(TOPIC)


def _of_transactions(played: Played) -> Iterator[str]:
    """Yield a complaint unless readers see all acknowledged records of committed transactions, and no record of the others."""
    if not any(topic.name == TOPIC for topic in played.cluster.topics):
        return
    visible = set(played.cluster.values(TOPIC, isolation="read_committed"))
    for number, transaction in enumerate(played.transactions, 1):
        if transaction.is_committed:
            missing = [
                record
                for record in transaction.sent
                if record.is_acked and record.value not in visible
            ]
            if missing:
                yield f"{len(missing)} of transaction {number}, which was committed, are not visible"
        else:
            seen = [record for record in transaction.sent if record.value in visible]
            if seen:
                yield f"{len(seen)} of transaction {number}, which was not committed, are visible"
    for group, offset in played.row.holds.offsets.items():
        committed = played.cluster.committed(group).get((TOPIC, 0))
        if committed != offset:
            yield f"the offset of {group} is {committed}"


def _of_each(
    acked: list[Sent], logged: dict[int, dict[int, bytes | None]], everything: list[bytes | None]
) -> Iterator[str]:
    lost = [record for record in acked if record.value not in everything]
    if lost:
        yield f"{len(lost)} acknowledged are not in the log"
    astray = [
        record
        for record in acked
        if record.offset is not None
        and record.offset >= 0
        and logged[record.partition or 0].get(record.offset) != record.value
    ]
    if astray and not lost:
        yield f"{len(astray)} do not stand where their offset says"


def _is_in_order(values: Iterable[bytes | None], sent: list[Sent]) -> bool:
    """Return whether the log has the first copies of records in the order of their sends."""
    place = {record.value: number for number, record in enumerate(sent)}
    places = [place[value] for value in dict.fromkeys(values) if value in place]
    return places == sorted(places)


def _of_the_rest(played: Played) -> Iterator[str]:
    yield from _of_counts(played)
    if played.stop_error is not None:
        yield f"stop failed: {_text(played.stop_error)}"
    if not played.row.holds.unreadable:
        yield from (
            f"a broker could not read it: {violation.what}"
            for violation in played.cluster.violations
        )


def _failures(played: Played) -> list[Sent | Called]:
    """Return the failed records, or the failed calls where the row is about calls."""
    records: list[Sent | Called] = [record for record in played.sent if record.error is not None]
    return records or [call for call in played.calls if call.error is not None]


def _of_failures(failures: list[Sent | Called], holds: Holds) -> Iterator[str]:
    for record in failures:
        if holds.error is not None and holds.error not in _names(record.error):
            yield f"failed as {' from '.join(_names(record.error))}, not as {holds.error}"
            return
        if (
            holds.persisted is not None
            and getattr(record.error, "persisted", None) != holds.persisted
        ):
            yield f"says persisted={getattr(record.error, 'persisted', None)}"
            return
        explain = getattr(record.error, "explain", str)
        missing = [
            word
            for word in holds.says
            if word not in f"{record.error} {record.error.__cause__} {explain()}"
        ]
        if missing:
            yield f"the error does not say {missing}: {record.error}"
            return


def _of_requests(played: Played, holds: Holds) -> Iterator[str]:
    if holds.epochs is not None:
        batches = played.cluster.log(TOPIC, 0).batches()
        seen = {
            (batch.producer_id, batch.producer_epoch) for batch in batches if not batch.is_control
        }
        if len(seen) != holds.epochs:
            yield f"{len(seen)} epochs"
    for api, (least, most) in holds.requests.items():
        count = len(played.cluster.requests(api))
        if not least <= count <= most:
            yield f"{count} {api} requests"
