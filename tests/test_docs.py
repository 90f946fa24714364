"""The documentation is true: its first examples run, its tables are those of the code, its links lead somewhere."""

from __future__ import annotations

import pathlib
import re
import runpy
import textwrap

import pytest

from tests.tools import doc_blocks

ROOT = pathlib.Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *(ROOT / "docs").rglob("*.md")])


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
    sections = [(path, name) for path, name in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", text) if path.endswith(".md") or not path]
    assert [(path, name) for path, name in sections if name not in anchors(page.parent / path if path else page)] == []
    named = re.findall(r"`((?:aioproducer|docs|examples|tests)/[\w/.]+\.\w+)`", text)
    assert [path for path in named if not (ROOT / path).exists()] == []


@pytest.mark.asyncio
async def test_the_example_of_the_fake_cluster_runs() -> None:
    """The first example of docs/topics/testing.md runs unchanged, its assertions included."""
    example = re.search(r"```python\n(.*?)```", (ROOT / "docs/topics/testing.md").read_text(), re.DOTALL)
    assert example is not None
    names: dict[str, object] = {}
    exec(f"async def shown():\n{textwrap.indent(example[1], '    ')}", names)  # our own page
    shown = names["shown"]
    assert callable(shown)
    await shown()


def test_the_example_of_a_typed_topic_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """The first example of docs/topics/serializers.md runs unchanged, its assertion included."""
    example = re.search(r"```python\n(.*?)```", (ROOT / "docs/topics/serializers.md").read_text(), re.DOTALL)
    assert example is not None
    exec(compile(example[1], "serializers.md", "exec", dont_inherit=True), {"__name__": "serializers"})
    assert capsys.readouterr().out == "0\n"


def test_the_reference_of_options_is_up_to_date() -> None:
    """docs/reference/config.md is what its maker makes of the table of options now: `python docs/reference/make_config.py`."""
    made = runpy.run_path(str(ROOT / "docs/reference/make_config.py"))
    assert (ROOT / "docs/reference/config.md").read_text(encoding="utf-8") == made["page"]()


def test_the_page_of_options_begins_with_a_few() -> None:
    """The ones that most programs set come first, and no option has an empty default that says nothing."""
    page = (ROOT / "docs/reference/config.md").read_text(encoding="utf-8")
    first, _, everything = page.partition("## All options")
    assert 5 <= len(re.findall(r"^\| `\w+` \|", first, re.MULTILINE)) <= 6
    assert re.search(r"^\| `interceptors` \| none \|", everything, re.MULTILINE)


def test_the_tables_of_errors_are_up_to_date() -> None:
    """docs/topics/delivery.md says what the verdicts are now: `python docs/topics/make_delivery.py`."""
    made = runpy.run_path(str(ROOT / "docs/topics/make_delivery.py"))
    text = (ROOT / "docs/topics/delivery.md").read_text(encoding="utf-8")
    assert made["BEGIN"] in text
    assert text == made["page"](text)


def test_the_table_of_drain_rules_is_up_to_date() -> None:
    """docs/topics/drain.md says what the rules are now: `python docs/topics/make_drain.py`."""
    made = runpy.run_path(str(ROOT / "docs/topics/make_drain.py"))
    assert (ROOT / "docs/topics/drain.md").read_text(encoding="utf-8") == made["page"]()


def test_the_table_of_a_transactions_errors_is_up_to_date() -> None:
    """docs/topics/transactions.md says what the table is now: `python docs/topics/make_transactions.py`."""
    made = runpy.run_path(str(ROOT / "docs/topics/make_transactions.py"))
    assert (ROOT / "docs/topics/transactions.md").read_text(encoding="utf-8") == made["page"]()


def test_each_block_says_what_it_uses(tmp_path: pathlib.Path) -> None:
    """Each Python block of a page is a module for type checkers (`nox -s types`), on the lines of its page; a name that nothing makes is refused."""
    assert doc_blocks.write(tmp_path) == len(doc_blocks.blocks()) == len(list(tmp_path.iterdir())) > 40
    [first, *_] = doc_blocks.blocks()
    page = (ROOT / first.page).read_text(encoding="utf-8").splitlines()
    assert (tmp_path / f"{first.name}.py").read_text(encoding="utf-8").splitlines()[first.line :] == page[first.line :][
        : first.code.count("\n")
    ]
    with pytest.raises(NameError, match=r"docs/page.md:3: unheard_of: declare it"):
        doc_blocks.module(doc_blocks.Block("docs/page.md", 3, "await producer.send(unheard_of)\n"), frozenset({"producer"}))


def test_the_readme_names_every_example() -> None:
    """The README names every example, and a test that runs an example names it."""
    examples = {path.stem for path in (ROOT / "examples").glob("*.py")}
    assert set(re.findall(r"`examples/(\w+)\.py[` ]", (ROOT / "README.md").read_text())) == examples
    tests = "".join(path.read_text() for path in (ROOT / "tests").glob("test_examples*.py"))
    assert [name for name in examples if name not in tests] == []


def test_the_readmes_commands_are_sessions() -> None:
    """The two commands of the README name sessions of the noxfile, and `.ci/run` finds the one for the tests."""
    readme, noxfile = (ROOT / "README.md").read_text(), (ROOT / "noxfile.py").read_text()
    commands = re.findall(r"^    python3 -m venv \.venv && \.venv/bin/pip install nox && \.venv/bin/nox -s (\w+)$", readme, re.MULTILINE)
    assert commands == ["demo", "tests"]
    assert [name for name in commands if f"\ndef {name}(" not in noxfile] == []
    assert "nox -s tests" in (ROOT / ".ci/run").read_text()
