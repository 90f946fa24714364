"""Calls done callbacks as the loop would, in one step: an error of a callback goes to the loop's exception handler."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable, Iterator, Sequence
    from contextvars import Context

__all__ = ["run_callbacks"]


def run_callbacks(
    loop: AbstractEventLoop, contexts: Sequence[Context], calls: Iterator[tuple[Context, Callable[[Any], object], Any]]
) -> None:
    """Call the callbacks as the loop would. Must be called from a callback of the loop.

    The loop's exception handler gets each exception of a callback. A BaseException that ends loops is raised.

    Args:
        loop: the event loop; its exception handler is called.
        contexts: the contexts of `calls`. If all are one context, as those of one `gather`, it is entered once.
        calls: the context, function and argument of each call.
    """
    if contexts and _are_one(contexts):
        # RuntimeError: the loop itself runs in this context, which cannot be entered twice. Below, that is told for each callback.
        with suppress(RuntimeError):
            contexts[0].run(_run_all, loop, calls)
            return
    for context, callback, argument in calls:
        try:
            context.run(callback, argument)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            loop.call_exception_handler({"message": f"Exception in callback {callback!r}", "exception": error})


def _are_one(contexts: Sequence[Context]) -> bool:
    first = contexts[0]
    for context in contexts:  # noqa: SIM110  (`all` takes twice as long)
        if context is not first:
            return False
    return True


def _run_all(loop: AbstractEventLoop, calls: Iterator[tuple[Context, Callable[[Any], object], Any]]) -> None:
    for _context, callback, argument in calls:
        try:
            callback(argument)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            loop.call_exception_handler({"message": f"Exception in callback {callback!r}", "exception": error})
