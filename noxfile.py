"""What can be done with this tree: `nox -l` lists it, `nox -s NAME` does it.

Every session but `build` runs in one environment, `.nox/shared`, which is installed once and again only when pyproject.toml or
Python changed: a warm run installs nothing. It is filled by uv where that is on PATH, else by pip.
"""

from __future__ import annotations

import hashlib
import os
import pathlib
import shutil
import sys
from types import ModuleType

import nox

nox.needs_version = ">=2024.10"
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.sessions = ["lint", "types", "floors", "unit"]

ROOT = pathlib.Path(__file__).parent
SHARED = ROOT / ".nox" / "shared"
OLDEST_PYTHON = (3, 11)
WITHOUT_JAVA = ("-m", "not integration and not spark", "--ignore=tests/spark", "--ignore=tests/test_examples.py")
LOOPS = {"debug": {"PYTHONASYNCIODEBUG": "1"}, "eager": {"AIOPRODUCER_TEST_LOOP": "eager"}, "uvloop": {"AIOPRODUCER_TEST_LOOP": "uvloop"}}


# Sessions


@nox.session(venv_backend="none")
def demo(session: nox.Session) -> None:
    """336,776 flights to a real Kafka, through Spark, into Parquet. Arguments behind `--` go to the example."""
    need_java(session)
    run(session, "python", "examples/flights_pipeline.py", *session.posargs)


@nox.session(venv_backend="none")
def tests(session: nox.Session) -> None:
    """All tests: unit, integration, Spark."""
    need_java(session)
    run(session, "python", "-m", "pytest", *session.posargs)


@nox.session(venv_backend="none")
def unit(session: nox.Session) -> None:
    """The tests that need neither Java nor a network, and which branches of the package they take."""
    chosen = ("-m", "pytest", "-m", "not integration and not spark", *session.posargs)
    if session.posargs:
        run(session, "python", *chosen)
        return
    # not by pytest-cov: pytest loads our plugin, and with it most of the package, before that begins to measure
    run(session, "coverage", "run", *chosen)
    run(session, "coverage", "report")


@nox.session(python=["3.12", "3.13"], reuse_venv=True, name="pythons")
def pythons(session: nox.Session) -> None:
    """The unit tests on newer Pythons, each in an environment of its own and skipped where it is not installed; also with eager tasks."""
    session.install("-e", ".[unit]")
    session.run("python", "-m", "pytest", *WITHOUT_JAVA, *session.posargs)
    session.run("python", "-m", "pytest", *WITHOUT_JAVA, *session.posargs, env=LOOPS["eager"])


@nox.session(venv_backend="none")
def loops(session: nox.Session) -> None:
    """The unit tests with asyncio's debug mode, with eager tasks (from Python 3.12 on) and on uvloop."""
    for name, env in LOOPS.items():
        if name == "eager" and sys.version_info < (3, 12):
            session.log("Eager tasks came with Python 3.12: `nox -s pythons` runs them there")
        else:
            session.run(str(shared(session) / "python"), "-m", "pytest", *WITHOUT_JAVA, *session.posargs, external=True, env=env)


@nox.session(venv_backend="none")
def integration(session: nox.Session) -> None:
    """The tests against a real Kafka."""
    need_java(session)
    run(session, "python", "-m", "pytest", "-m", "integration and not spark", *session.posargs)


@nox.session(venv_backend="none")
def spark(session: nox.Session) -> None:
    """The tests with Spark, some of them against a real Kafka."""
    need_java(session)
    run(session, "python", "-m", "pytest", "-m", "spark", *session.posargs)


@nox.session(venv_backend="none")
def lint(session: nox.Session) -> None:
    """Style, format and spelling."""
    run(session, "ruff", "check", ".")
    run(session, "ruff", "format", "--check", ".")
    run(session, "codespell")


@nox.session(venv_backend="none", name="types")
def types_(session: nox.Session) -> None:
    """mypy, strict."""
    run(session, "mypy")


@nox.session(venv_backend="none")
def floors(session: nox.Session) -> None:
    """Which way imports go; and that each contract would be seen to break."""
    run(session, "lint-imports", "--no-logo")
    run(session, "python", "-m", "pytest", "tests/test_floors.py", "tests/test_exports.py", *session.posargs)


@nox.session(venv_backend="none")
def bench(session: nox.Session) -> None:
    """Ours and aiokafka on one real Kafka. Behind `--`: its arguments, or `heartbeat`, `stall`, `knobs`, `many`, `pending` or `columns` and theirs."""
    words = session.posargs
    if words[:1] not in (["pending"], ["columns"]):  # which have clusters of their own
        need_java(session)
    if words and words[0] in {"heartbeat", "stall", "knobs", "many", "pending", "columns"}:
        run(session, "python", "-m", f"tests.benchmarks.{words[0]}", *words[1:])
    else:
        run(session, "python", "-m", "tests.benchmarks", *words)


@nox.session(venv_backend="none")
def mutants(session: nox.Session) -> None:
    """Small wrong changes of records, core and the pool: each must make a test fail. Names behind `--`: only these."""
    run(session, "python", "-m", "tests.mutants", *session.posargs)


@nox.session(venv_backend="none")
def chaos(session: nox.Session) -> None:
    """Three real nodes are killed, stopped and cut off while producers send, for 20 minutes; then every record is looked for."""
    need_java(session)
    run(session, "python", "-m", "tests.chaos", *session.posargs)


@nox.session(venv_backend="none")
def sim(session: nox.Session) -> None:
    """200,000 simulated runs in two processes. Behind `--`: the simulation's arguments, or `bugs`: those that it must find."""
    words = session.posargs or ["--seeds", "1-200000", "--jobs", "2"]
    if words[0] == "bugs":
        run(session, "python", "-m", "tests.mutants", "--simulated", *words[1:])
    else:
        run(session, "python", "-m", "aioproducer.testing.simulation", *words)


@nox.session(venv_backend="none")
def experiments(session: nox.Session) -> None:
    """What the special systems are good for, each on and off, as tables and pictures. Names and `--quick`, `--page`, `--json` behind `--`."""
    run(session, "python", "-m", "tests.experiments", *session.posargs)


@nox.session(venv_backend="none")
def docs(session: nox.Session) -> None:
    """Write the pages that are made of code."""
    run(session, "python", "docs/reference/make_config.py")
    run(session, "python", "docs/reference/make_metrics.py")
    run(session, "python", "docs/topics/make_dashboard.py")


@nox.session(reuse_venv=True)
def build(session: nox.Session) -> None:
    """The sdist and the wheel, in dist/; the wheel is installed alone and imported."""
    session.install("build")
    shutil.rmtree(ROOT / "dist", ignore_errors=True)
    session.run("python", "-m", "build", silent=True)
    [wheel] = (ROOT / "dist").glob("*.whl")
    session.install("--force-reinstall", str(wheel))
    session.chdir(session.create_tmp())  # so that it is the wheel that is imported
    session.run("python", "-c", "import aioproducer; print(aioproducer.__version__, aioproducer.__file__)")


# What they stand on


def run(session: nox.Session, program: str, *words: str) -> None:
    """Run a program of the shared environment."""
    session.run(str(shared(session) / program), *words, external=True)


def shared(session: nox.Session) -> pathlib.Path:
    """The folder with the programs of the shared environment, which is made or brought up to date if need be."""
    need_python(session)
    programs = SHARED / ("Scripts" if sys.platform == "win32" else "bin")
    wanted = hashlib.sha256((ROOT / "pyproject.toml").read_bytes() + sys.version.encode() + os.fsencode(ROOT)).hexdigest()
    installed = SHARED / "installed.txt"
    if not installed.exists() or installed.read_text(encoding="utf-8") != wanted:
        installed.unlink(missing_ok=True)
        session.log("Installing what pyproject.toml names, once: half a gigabyte from the registry, some minutes")
        session.run(sys.executable, "-m", "venv", "--clear", str(SHARED), external=True, silent=True)
        python, what = str(programs / "python"), ("-e", ".[test,lint]")
        if uv := shutil.which("uv"):
            session.run(uv, "pip", "install", "--python", python, *what, external=True)
        else:
            session.run(python, "-m", "pip", "install", "--progress-bar", "off", *what, external=True)
        installed.write_text(wanted, encoding="utf-8")  # last, so that what was broken off is done again
    return programs


def need_python(session: nox.Session) -> None:
    """End now if this Python is too old; the environments are made with it."""
    if sys.version_info < OLDEST_PYTHON:
        needed = ".".join(map(str, OLDEST_PYTHON))
        session.error(f"Python {sys.version.split()[0]} is too old: install {needed} or newer, and make .venv with it")


def need_java(session: nox.Session) -> None:
    """End now, with what to install, if there is no Java for Kafka and Spark: before half a gigabyte is fetched."""
    need_python(session)
    package = ModuleType("aioproducer")  # its front door needs what is not installed yet; `jars` does not
    package.__path__ = [str(ROOT / "aioproducer")]
    sys.modules.setdefault("aioproducer", package)
    from aioproducer.jars import JavaMissing, java  # noqa: PLC0415  see above

    try:
        session.log(f"Java: {java()}")
    except JavaMissing as error:
        session.error(str(error).rstrip("."))  # nox adds its own
