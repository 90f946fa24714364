"""The documentation is true: its first examples run, its tables are those of the code, its links lead somewhere."""

from __future__ import annotations

import inspect
import pathlib
import re
import runpy
import textwrap

import pytest

ROOT = pathlib.Path(__file__).parents[1]
PAGES = sorted(
    [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "SECURITY.md",
        *(ROOT / "docs").rglob("*.md"),
    ]
)


def anchors(page: pathlib.Path) -> list[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: pathlib.Path) -> None:
    """Each relative link of a page, its section too, and each path of the tree that it names, is there."""
    text = page.read_text()
    links = [link for link in re.findall(r"\]\(([^)#]+)", text) if "://" not in link]
    assert [link for link in links if not (page.parent / link).exists()] == []
    sections = [
        (path, name)
        for path, name in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", text)
        if path.endswith(".md") or not path
    ]
    assert [
        (path, name)
        for path, name in sections
        if name not in anchors(page.parent / path if path else page)
    ] == []
    named = re.findall(r"`((?:aioproducer|docs|examples|tests)/[\w/.]+\.\w+)`", text)
    assert [path for path in named if not (ROOT / path).exists()] == []


@pytest.mark.asyncio
async def test_the_example_of_the_fake_cluster_runs() -> None:
    """The first example of docs/topics/testing.md runs unchanged, its assertions included."""
    example = re.search(
        r"```python\n(.*?)```", (ROOT / "docs/topics/testing.md").read_text(), re.DOTALL
    )
    assert example is not None
    names: dict[str, object] = {}
    exec(f"async def shown():\n{textwrap.indent(example[1], '    ')}", names)  # our own page
    shown = names["shown"]
    assert callable(shown)
    await shown()


def test_the_example_of_a_typed_topic_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """The first example of docs/topics/serializers.md runs unchanged, its assertion included."""
    example = re.search(
        r"```python\n(.*?)```", (ROOT / "docs/topics/serializers.md").read_text(), re.DOTALL
    )
    assert example is not None
    exec(
        compile(example[1], "serializers.md", "exec", dont_inherit=True),
        {"__name__": "serializers"},
    )
    assert capsys.readouterr().out == "0\n"


@pytest.mark.parametrize(
    ("maker", "page"),
    [
        ("reference/make_config.py", "reference/config.md"),
        ("reference/make_metrics.py", "reference/metrics.md"),
        ("topics/make_dashboard.py", "topics/dashboard.json"),
        ("topics/make_delivery.py", "topics/delivery.md"),
        ("topics/make_transactions.py", "topics/transactions.md"),
    ],
)
def test_a_page_that_is_made_of_code_is_up_to_date(maker: str, page: str) -> None:
    """It is what its maker makes of the code now; one that holds more than the maker's part is given to it."""
    made = runpy.run_path(str(ROOT / "docs" / maker))["page"]
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    assert made(*[text] * len(inspect.signature(made).parameters)) == text
