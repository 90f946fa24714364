"""Reads options from environment variables: `KAFKA_LINGER_MS=5` is `linger_ms="5"`.

Two beginnings of names are read. `AIOPRODUCER_` belongs to this package, so an unknown name is an error. The user's prefix, `KAFKA_` unless
another one is given, is shared with other programs (`KAFKA_HEAP_OPTS`), so unknown names are left out, and one line of the log names them.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any, Final

from aioproducer.errors import ConfigError
from aioproducer.option_names import hide_secrets, known_name, say_unknown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioproducer.option_kinds import Option

__all__ = ["environment_options"]

_log = logging.getLogger(__name__)

_OURS: Final = "AIOPRODUCER_"
# Variables of the package that are no options: two choose its build, one the folder of fetched files (aioproducer/jars.py).
_NO_OPTIONS: Final = frozenset({"PURE", "REQUIRE_EXT", "CACHE"})


def environment_options(prefix: str, table: Mapping[str, Option], environ: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the options that environment variables set, by the names that `options_of` takes. Secrets are hidden.

    An empty variable is as good as none. A variable of `AIOPRODUCER_` takes precedence over one of `prefix`.

    Args:
        prefix: the beginning of the names; an underscore at its end is not needed.
        table: all options.
        environ: the environment variables; None: those of the process.

    Raises:
        ConfigError: a variable of `AIOPRODUCER_` is no option (the text has the nearest), or one of `prefix` is not text.
    """
    beginning = prefix if prefix.endswith("_") or not prefix else f"{prefix}_"
    variables = os.environ if environ is None else environ
    shared, ours = _hidden(variables, beginning, table), _hidden(variables, _OURS, table)
    # From here on no frame holds the secrets of the environment.
    del environ, variables
    unknown = next((name for name in ours if known_name(name, table) is None and name.upper() not in _NO_OPTIONS), None)
    if unknown is not None:
        raise ConfigError(f"{_OURS}{unknown.upper()}: {say_unknown(unknown, table, dotted=False)}")
    if beginning != _OURS:
        _report(sorted(f"{beginning}{name.upper()}" for name in shared if known_name(name, table) is None))
    return {name: value for name, value in (shared | ours).items() if known_name(name, table) is not None}


def _report(left_out: list[str]) -> None:
    if left_out:
        _log.info("No option of a producer, and left out: %s", ", ".join(left_out))


def _hidden(environ: Mapping[str, str], beginning: str, table: Mapping[str, Option]) -> dict[str, Any]:
    """Return the variables with this prefix, by the names that `options_of` takes, or in lower case. Secrets are hidden.

    Empty variables are left out.
    """
    found: dict[str, Any] = {
        known_name(name, table) or name: value
        for variable, value in environ.items()
        if variable.startswith(beginning) and value and (name := variable[len(beginning) :].lower())
    }
    hide_secrets(found, table)
    return found
