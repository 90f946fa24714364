"""Writes `config.md` beside it, of the table of options in `aioproducer/config.py`: `python docs/reference/make_config.py`."""

from __future__ import annotations

import enum
import pathlib
from typing import TYPE_CHECKING

from aioproducer.config import OPTIONS, ProducerConfig
from aioproducer.option_names import NOT_HERE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioproducer.options import Option

PAGE = pathlib.Path(__file__).with_name("config.md")

HEAD = """\
# Options

<!-- Made by docs/reference/make_config.py of aioproducer/config.py: change it there. -->

`Producer(linger_ms=5)`, or one `ProducerConfig(linger_ms=5)` for several producers. Both check everything at once, and do no I/O. Values
may be text, as in environment files; integers of numpy's and other types are integers, and `Decimal` and numpy's floats are taken for
times. `producer.config` shows what is in force.

`ProducerConfig.from_mapping({"linger.ms": "5"})` takes Java's names, which are ours with dots for underscores unless the table says
otherwise, and librdkafka's, with their values and units; librdkafka's `compression.level` is that of the codec which is chosen.
"""

CONFLICTS = """\
## Options that depend on each other

What you wrote yourself and cannot be together raises `ConfigError`. A default gives way to what you wrote, with one warning:

- `delivery_timeout_ms` is at least `linger_ms + request_timeout_ms`; `auto` counts as 0.
- A first pause or time (`retry_backoff_ms`, `reconnect_backoff_ms`, `socket_connection_setup_timeout_ms`) is not above its `max`.
- Where `reconnect_backoff_ms` is given alone, `reconnect_backoff_max_ms` is the same: the pause does not grow (as in Java).
- `buffer_memory` holds at least one batch of `batch_size`.
- zstd needs `message_format_max=2`; a partitioner of your own decides about keys by itself, without `partitioner_ignore_keys`.
"""

NOT_HERE_HEAD = """\
## Names that are known and no option here

`from_mapping` and `Producer` say for each of these why; an unknown name raises too, with the nearest known one. Names of TLS and SASL are
left out where they ask for neither: `security.protocol=plaintext`, and the defaults of aiokafka's arguments (`sasl_mechanism="PLAIN"`,
`ssl_context=None` and the like).
"""


def page() -> str:
    """The whole page."""
    defaults = ProducerConfig()
    options = [(f"`{name}`", _default(getattr(defaults, name)), one.kind.values, one.doc, _others(one)) for name, one in OPTIONS.items()]
    missing = [(", ".join(f"`{name}`" for name in names), why) for why, names in NOT_HERE]
    return "\n".join(
        [
            HEAD,
            _table(("option", "default", "values", "what it is", "other names"), options),
            CONFLICTS,
            NOT_HERE_HEAD,
            _table(("names", "why"), missing).rstrip("\n") + "\n",
        ]
    )


def _default(value: object) -> str:
    if isinstance(value, enum.Enum):
        return f"`{value.name.lower()}`"
    if isinstance(value, tuple):
        return f"`{','.join(value)}`"
    if value == "":
        return "empty"
    return f"`{value:.0f}`" if isinstance(value, float) else f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _others(option: Option) -> str:
    java = {"": [], None: ["none in Java"]}.get(option.java, [f"`{option.java}`"])
    java += [f"`{name}` (KIP)" for name in option.kips]
    return ", ".join([*java, *(f"`{name}`" + (f" (of {scale})" if scale > 1 else "") for name, scale in option.librdkafka.items())])


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
