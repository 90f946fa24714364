"""Writes the table of rules in `docs/topics/drain.md` from `aioproducer.core.drain_policy.RULES`.

python docs/topics/make_drain.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from aioproducer.core.drain_policy import RULES, Linger, Rule

PAGE: Final = Path(__file__).with_name("drain.md")
BEGIN, END = "<!-- written by: python docs/topics/make_drain.py -->", "<!-- end of the rules -->"
DECIDES: Final = {
    "holds": "whether an open batch waits",
    "frees": "whether an open batch waits",
    "drain": "a drain of a burst",
    "answer": "the drain at an answer",
    "most": "the size of a request in a burst",
}


def rules() -> str:
    """Return the table of rules as Markdown."""
    lines = ["| rule | `linger_ms` | decides | why |", "|---|---|---|---|"]
    lines += [
        f"| {rule.name} | {_lingers(rule)} | {_decides(rule)} | {rule.reason} |" for rule in RULES
    ]
    return "\n".join(lines)


def _lingers(rule: Rule) -> str:
    return (
        "any"
        if len(rule.lingers) == len(Linger)
        else ", ".join(str(linger) for linger in Linger if linger in rule.lingers)
    )


def _decides(rule: Rule) -> str:
    return next(words for name, words in DECIDES.items() if getattr(rule, name) is not None)


def page() -> str:
    """Return the page with the table as it is now."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    return f"{before}{BEGIN}\n\n{rules()}\n\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
