"""Reads from an error what a tool keeps that records the locals of its frames, as Sentry does."""

from __future__ import annotations

import pathlib
import traceback
from typing import TYPE_CHECKING

import aioproducer

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["is_ours", "shown_by"]

_PACKAGE = str(pathlib.Path(aioproducer.__file__).parent)
_FAKE = str(pathlib.Path(aioproducer.__file__).parent / "testing" / "security")


def shown_by(error: BaseException) -> str:
    """Return the error's texts and the locals of the package's frames, of the errors behind it, too, however they are linked.

    Frames of a caller are left out, as they hold what the caller wrote. So is the text of the lines of source.
    """
    texts = []
    for one in _behind(error):
        frames = [frame for frame, _ in traceback.walk_tb(one.__traceback__) if is_ours(frame.f_code.co_filename)]
        held = [f"{frame.f_code.co_qualname}: {name} = {_repr(value)}" for frame in frames for name, value in frame.f_locals.items()]
        texts += [str(one), repr(one), repr(getattr(one, "__notes__", "")), *held]
    return "\n".join(texts)


def is_ours(file: str) -> bool:
    """Return whether a file is the package's; what stands in for the broker in tests knows passwords, and is left out."""
    # Frames of a dataclass's constructor have no file.
    return (file.startswith(_PACKAGE) and not file.startswith(_FAKE)) or file == "<string>"


def _repr(value: object) -> str:
    try:
        return repr(value)
    # An object that is not whole yet has no repr; nor has a traceback anything of it.
    except AttributeError:
        return ""


def _behind(error: BaseException) -> Iterator[BaseException]:
    seen: list[BaseException] = []
    waiting = [error]
    while waiting:
        one = waiting.pop()
        if one not in seen:
            seen.append(one)
            yield one
            waiting += [linked for linked in (one.__cause__, one.__context__) if linked is not None]
