"""What can be done with this tree: `nox -l` lists it, `nox -s NAME` does it.

Every session but `pythons` and `build` runs in one environment, `.nox/shared`, which is installed once and again only when
pyproject.toml, what is compiled, or Python changed: a warm run installs nothing. It is filled by uv where that is on PATH, else by pip.

Tests run on the compiled build where there is a C compiler; `plain` and `unit` run on plain Python.
"""

from __future__ import annotations

import hashlib
import os
import pathlib
import runpy
import shutil
import sys
import tarfile
import tomllib
from types import ModuleType

import nox
from nox.command import CommandFailed

nox.needs_version = ">=2024.10"
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.sessions = ["lint", "types", "unit"]

ROOT = pathlib.Path(__file__).parent
SHARED = ROOT / ".nox" / "shared"
OLDEST_PYTHON = (3, 11)
WITHOUT_JAVA = (
    "-m",
    "not integration and not slow and not spark",
    "--ignore=tests/spark",
    "--ignore=tests/test_examples.py",
)
PACKAGE = ROOT / "aioproducer"
SOURCES = (
    *runpy.run_path(str(PACKAGE / "build.py"))["compiled_from"](PACKAGE),
    *sorted(PACKAGE.rglob("*.pxd")),
)
COMPILED_FROM = ("setup.py", *(path.relative_to(ROOT).as_posix() for path in SOURCES))
PLAIN = {"AIOPRODUCER_PURE": "1", "AIOPRODUCER_REQUIRE_EXT": "0"}
COMPILED = {"AIOPRODUCER_PURE": "0", "AIOPRODUCER_REQUIRE_EXT": "1"}
TWICE = (
    "tests/contract",
    "tests/core/test_batch_splitting.py",
    "tests/engine",
    "tests/scenarios",
    "tests/tools/faults",
)  # what the way of a record is seen in
# Of these folders, what no compiled module has a part in: connections, TLS, SASL, names, brokers.
ONCE = (
    "tests/engine/metadata/test_bootstrap_failures.py",
    "tests/engine/observability/test_certificates.py",
    "tests/engine/test_broker_security.py",
    "tests/scenarios/test_hidden_secrets.py",
    "tests/scenarios/test_many_brokers.py",
    "tests/scenarios/test_name_lookups.py",
    "tests/scenarios/test_network.py",
    "tests/scenarios/test_sasl.py",
    "tests/scenarios/test_starting.py",
    "tests/scenarios/test_tls.py",
    "tests/scenarios/test_user_dialers.py",
)
# What needs both builds is skipped there.
NO_COMPILER = {
    "AIOPRODUCER_PURE": "0",
    "AIOPRODUCER_REQUIRE_EXT": "0",
    "CC": "/bin/false",
    "CI": "",
}
# What each is installed with; "any" is the wheel for any Python.
DISTRIBUTIONS = {"wheel": COMPILED, "sdist": NO_COMPILER, "any": NO_COMPILER}
# What `build_info` says of each: the build, and a part of the reason.
BUILD_OF = {
    "wheel": ("compiled", ""),
    "sdist": ("plain Python", "installed from source"),
    "any": ("plain Python", "py3-none-any is installed"),
}
TELL = """
import aioproducer, sys
info = aioproducer.build_info()
print(aioproducer.__file__, info, sep="\\n")
[build, *reason] = sys.argv[1:]
assert info.build == build and info.reason == info.columns_reason and all(part in info.reason for part in reason)
"""
KERBEROS = ROOT / ".nox" / "kerberos"
KERBEROS_TESTS = ("tests/integration/test_kerberos_real.py",)
# CI counts a skip as a failure: there `kerberos` runs these tests, as gssapi is in no extra that the shared environment has.
ELSEWHERE = ("-m", "not kerberos") if os.environ.get("CI") else ()
LOOPS = {
    "debug": {"PYTHONASYNCIODEBUG": "1"},
    "eager": {"AIOPRODUCER_TEST_LOOP": "eager"},
    "uvloop": {"AIOPRODUCER_TEST_LOOP": "uvloop"},
}


# Sessions


@nox.session(venv_backend="none")
def demo(session: nox.Session) -> None:
    """336,776 flights to a real Kafka, through Spark, into Parquet; aggregates of them back to Kafka. Arguments behind `--` go to the example."""
    need_java(session)
    run(session, "python", "examples/flights_pipeline.py", *session.posargs)


@nox.session(venv_backend="none")
def tests(session: nox.Session) -> None:
    """All tests: unit, integration, Spark. Those with Kerberos say what they want where that is missing; in CI `kerberos` runs them."""
    need_java(session)
    run(session, "python", "-m", "pytest", *ELSEWHERE, *session.posargs)


@nox.session(venv_backend="none")
def unit(session: nox.Session) -> None:
    """The tests that need neither Java nor a network, on plain Python, and which branches they take. With arguments: on what is there."""
    chosen = ("-m", "pytest", "-m", "not integration and not slow and not spark", *session.posargs)
    if session.posargs:
        run(session, "python", *chosen)
        return
    # not by pytest-cov: pytest loads our plugin, and with it most of the package, before that begins to measure
    run(session, "coverage", "run", *chosen, env=PLAIN)
    run(session, "coverage", "report")


@nox.session(venv_backend="none")
def plain(session: nox.Session) -> None:
    """The tests in which the way of a record is seen, on plain Python; what `tests` does on the compiled build, or on both."""
    chosen = session.posargs or (*TWICE, *(f"--ignore={path}" for path in ONCE))
    run(
        session,
        "python",
        "-m",
        "pytest",
        "-m",
        "not integration and not slow and not spark and not both_builds",
        *chosen,
        env=PLAIN,
    )


@nox.session(python=["3.12", "3.13", "3.14", "3.15"], reuse_venv=True, name="pythons")
def pythons(session: nox.Session) -> None:
    """The unit tests on newer Pythons, each in an environment of its own and skipped where it is not installed; also with eager tasks."""
    session.install(
        "-e", ".[unit]", env=COMPILED
    )  # else a build that failed would leave the twin to be tested twice
    session.run("python", "-c", TELL, "compiled", env=COMPILED)
    for env in ({}, LOOPS["eager"]):
        session.run("python", "-m", "pytest", *WITHOUT_JAVA, *session.posargs, env=COMPILED | env)


@nox.session(venv_backend="none")
def loops(session: nox.Session) -> None:
    """The unit tests with asyncio's debug mode, with eager tasks (from Python 3.12 on) and on uvloop, whose timers jump where time is virtual."""
    for name, env in LOOPS.items():
        if name == "eager" and sys.version_info < (3, 12):
            session.log("Eager tasks came with Python 3.12: `nox -s pythons` runs them there")
        else:
            session.run(
                str(shared(session) / "python"),
                "-m",
                "pytest",
                *WITHOUT_JAVA,
                *session.posargs,
                external=True,
                env=env,
            )


@nox.session(venv_backend="none")
def integration(session: nox.Session) -> None:
    """The tests against a real Kafka."""
    need_java(session)
    chosen = (
        "integration and not spark and not kerberos" if ELSEWHERE else "integration and not spark"
    )
    run(session, "python", "-m", "pytest", "-m", chosen, *session.posargs)


@nox.session(venv_backend="none")
def kerberos(session: nox.Session) -> None:
    """The tests with a real KDC. The package gssapi is compiled for it, beside the shared environment: a minute, once."""
    need_java(session)
    programs = shared(session)
    [wanted] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "optional-dependencies"
    ]["kerberos"]
    made_of = digest(wanted, sys.version)
    if not is_noted("kerberos", made_of):
        shutil.rmtree(KERBEROS, ignore_errors=True)
        settings = pathlib.Path(session.create_tmp()) / "build.cfg"
        settings.write_text(f"[build_ext]\nparallel = {os.cpu_count() or 1}\n", encoding="utf-8")
        # tests need no quick code; CFLAGS takes the place of -O3
        env = {"CFLAGS": "-O0 -g0", "DIST_EXTRA_CONFIG": str(settings)}
        install_words = (
            "-m",
            "pip",
            "install",
            "--progress-bar",
            "off",
            "--target",
            str(KERBEROS),
            wanted,
        )
        session.run(str(programs / "python"), *install_words, external=True, env=env)
        note("kerberos", made_of)
    path = os.pathsep.join(filter(None, [str(KERBEROS), os.environ.get("PYTHONPATH")]))
    run(
        session,
        "python",
        "-m",
        "pytest",
        *(session.posargs or KERBEROS_TESTS),
        env={"PYTHONPATH": path},
    )


@nox.session(venv_backend="none")
def spark(session: nox.Session) -> None:
    """The tests with Spark, some of them against a real Kafka."""
    need_java(session)
    run(session, "python", "-m", "pytest", "-m", "spark", *session.posargs)


@nox.session(venv_backend="none")
def spark_faults(session: nox.Session) -> None:
    """Streaming queries are killed while they write to a real Kafka; then every row is counted. Behind `--`: cases, or `--all`."""
    need_java(session)
    run(session, "python", "-m", "tests.tools.spark_faults", *session.posargs)


@nox.session(venv_backend="none")
def lint(session: nox.Session) -> None:
    """Rules, format, spelling, and which way imports go."""
    run(session, "ruff", "check", ".")
    run(session, "ruff", "format", "--check", ".")
    run(session, "codespell")
    run(session, "lint-imports", "--no-logo")
    path = os.pathsep.join(
        [str(shared(session)), os.environ["PATH"]]
    )  # on which it looks for pycodestyle
    run(session, "cython-lint", "--max-line-length", "140", "aioproducer", env={"PATH": path})


@nox.session(venv_backend="none", name="types")
def types_(session: nox.Session) -> None:
    """Mypy and basedpyright, strict, of the package, the examples and the pages' blocks."""
    run(session, "python", "-m", "tests.tools.doc_blocks", "build/doc_blocks")
    run(session, "mypy")
    run(session, "mypy", "build/doc_blocks")
    run(session, "basedpyright", "--pythonpath", str(shared(session) / "python"))


@nox.session(venv_backend="none")
def bench(session: nox.Session) -> None:
    """Ours beside aiokafka and confluent-kafka on one real Kafka. Behind `--`: workloads, or `heartbeat`, `spark`."""
    need_java(session)
    run(session, "python", "-m", "tests.tools.benchmarks", *session.posargs)


@nox.session(venv_backend="none")
def gate(session: nox.Session) -> None:
    """Instructions of a record, of this tree over those of its merge base with main (of main: of the commit in tests/tools/gate/base), by callgrind: at most 3 % more."""
    run(session, "python", "-m", "tests.tools.gate", *session.posargs)


@nox.session(venv_backend="none")
def leaks(session: nox.Session) -> None:
    """A million sends that end in every way, and nothing more alive than before. Ends and `--sends N` behind `--`."""
    run(session, "python", "-m", "tests.tools.leaks", *session.posargs)


@nox.session(venv_backend="none")
def sanitize(session: nox.Session) -> None:
    """The unit tests on extensions built with AddressSanitizer and UndefinedBehaviorSanitizer. Behind `--`: pytest's arguments."""
    run(session, "python", "-m", "tests.tools.sanitize", *session.posargs)


@nox.session(venv_backend="none")
def chaos(session: nox.Session) -> None:
    """Three real nodes are killed, stopped and cut off while producers send, for 20 minutes; then every record is looked for."""
    need_java(session)
    run(session, "python", "-m", "tests.tools.chaos", *session.posargs)


@nox.session(venv_backend="none")
def soak(session: nox.Session) -> None:
    """50,000 records a second to a real Kafka for 30 minutes, with cut connections: memory, tasks and sockets stay flat. `--minutes`, `--rate`."""
    need_java(session)
    run(session, "python", "-m", "tests.tools.soak", *session.posargs)


@nox.session(venv_backend="none")
def sim(session: nox.Session) -> None:
    """200,000 simulated runs in two processes. Behind `--`: the simulation's arguments."""
    words = session.posargs or ["--seeds", "1-200000", "--jobs", "2"]
    run(session, "python", "-m", "tests.simulation", *words)


@nox.session(venv_backend="none")
def experiments(session: nox.Session) -> None:
    """What the special systems are good for, each on and off, as tables. Names and `--quick` behind `--`."""
    run(session, "python", "-m", "tests.tools.experiments", *session.posargs)


@nox.session(venv_backend="none")
def docs(session: nox.Session) -> None:
    """Write the pages that are made of code."""
    run(session, "python", "docs/reference/make_config.py")
    run(session, "python", "docs/reference/make_metrics.py")
    run(session, "python", "docs/topics/make_dashboard.py")
    run(session, "python", "docs/topics/make_platforms.py")


@nox.session
def build(session: nox.Session) -> None:
    """The wheel, the sdist and the pure wheel, in dist/; each is installed, the last two without a compiler, and sends to a fake cluster."""
    made = distributions(session)
    session.install("twine")
    session.run("twine", "check", "--strict", *map(str, made.values()))
    if sys.platform == "linux":
        session.install("auditwheel")
        session.run("auditwheel", "show", str(made["wheel"]))
    for kind, env in DISTRIBUTIONS.items():
        depends = () if kind == "wheel" else ("--no-deps",)  # it has installed those of all
        session.install(
            "--force-reinstall", *depends, requirement("aioproducer", made[kind]), env=env
        )
        session.chdir(session.create_tmp())  # so that it is the installed one that is imported
        session.run("python", "-c", TELL, *BUILD_OF[kind], env=env)
        session.run("python", str(ROOT / "examples" / "hello.py"), env=env)


# What they stand on


def run(session: nox.Session, program: str, *words: str, env: dict[str, str] | None = None) -> None:
    """Run a program of the shared environment."""
    session.run(str(shared(session) / program), *words, external=True, env=env)


def distributions(session: nox.Session) -> dict[str, pathlib.Path]:
    """Make the sdist, and of it both wheels, in dist/: `wheel` must be compiled, `sdist` has the source of that and nothing generated."""
    session.install("build", "setuptools>=77")
    shutil.rmtree(ROOT / "dist", ignore_errors=True)
    session.run("python", "-m", "build", silent=True, env=COMPILED)
    [wheel], [sdist] = (ROOT / "dist").glob("*.whl"), (ROOT / "dist").glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        files = {name.partition("/")[2] for name in archive.getnames()}
    if not files.issuperset(COMPILED_FROM) or any(
        name.endswith((".c", ".so", ".pyd")) for name in files
    ):
        session.error(
            f"{sdist.name} lacks {', '.join(COMPILED_FROM)}, or has what is generated from it"
        )
    source = pathlib.Path(session.create_tmp()) / sdist.name.removesuffix(".tar.gz")
    shutil.rmtree(source, ignore_errors=True)
    with tarfile.open(sdist) as archive:
        archive.extractall(source.parent, filter="data")
    # In this environment, which has setuptools: Cython, the other requirement of a build, has nothing to do for this one.
    here = (
        "--no-isolation",
        "--skip-dependency-check",
        "--outdir",
        str(ROOT / "dist"),
        str(source),
    )
    session.run("python", "-m", "build", "--wheel", *here, silent=True, env=PLAIN)
    [anywhere] = (ROOT / "dist").glob("*-py3-none-any.whl")
    return {"wheel": wheel, "sdist": sdist, "any": anywhere}


def requirement(name: str, archive: pathlib.Path) -> str:
    """An archive as pip takes it: with its hash, or pip takes what it once built of another one that lay there."""
    return f"{name} @ {archive.as_uri()}#sha256={hashlib.sha256(archive.read_bytes()).hexdigest()}"


def shared(session: nox.Session) -> pathlib.Path:
    """The folder with the programs of the shared environment, which is made or brought up to date if need be."""
    need_python(session)
    programs = SHARED / ("Scripts" if sys.platform == "win32" else "bin")
    wanted = digest("pyproject.toml", sys.version, str(ROOT))
    compiled = digest(*COMPILED_FROM, wanted, *(os.environ.get(name, "") for name in COMPILED))
    if not is_noted("installed", wanted):
        session.log(
            "Installing what pyproject.toml names, once: half a gigabyte from the registry, some minutes"
        )
        session.run(
            sys.executable, "-m", "venv", "--clear", str(SHARED), external=True, silent=True
        )
        install(session, programs, "-e", ".[test,lint]")
        note("installed", wanted)
    elif not is_noted("compiled", compiled):
        install(session, programs, "--no-deps", "-e", ".")
    note("compiled", compiled)
    return programs


def install(session: nox.Session, programs: pathlib.Path, *what: str) -> None:
    """Install into the shared environment: by uv, which downloads and builds several packages at once, or by pip where uv fails."""
    python = str(programs / "python")
    try:
        uv = shutil.which("uv") or installed_uv(session, programs)
        session.run(uv, "pip", "install", "--python", python, *what, external=True)
    except CommandFailed:
        session.log("uv could not: pip has the same to do")
        session.run(python, "-m", "pip", "install", "--progress-bar", "off", *what, external=True)


def installed_uv(session: nox.Session, programs: pathlib.Path) -> str:
    """Install uv into the shared environment if it is not there. Return its path.

    Raises:
        CommandFailed: pip has an index of its own, which uv would not ask; or uv cannot be had.
    """
    python = str(programs / "python")
    settings = str(session.run(python, "-m", "pip", "config", "list", external=True, silent=True))
    if "index-url" in settings:
        raise CommandFailed("pip's settings name an index")
    if not shutil.which("uv", path=str(programs)):
        session.run(python, "-m", "pip", "install", "--quiet", "uv", external=True)
    return str(shutil.which("uv", path=str(programs)))


def digest(*names_or_words: str) -> str:
    """Of what these files of the tree hold, and of these words."""
    told = [
        (ROOT / each).read_bytes() if (ROOT / each).is_file() else each.encode()
        for each in names_or_words
    ]
    return hashlib.sha256(b"\0".join(told)).hexdigest()


def is_noted(what: str, wanted: str) -> bool:
    """Whether that was done last with this outcome; from here on it is not, so that what is broken off is done again."""
    path = SHARED / f"{what}.txt"
    noted = path.read_text(encoding="utf-8") if path.exists() else ""
    if noted != wanted:
        path.unlink(missing_ok=True)
    return noted == wanted


def note(what: str, done: str) -> None:
    """That this was done."""
    (SHARED / f"{what}.txt").write_text(done, encoding="utf-8")


def need_python(session: nox.Session) -> None:
    """End now if this Python is too old; the environments are made with it."""
    if sys.version_info < OLDEST_PYTHON:
        needed = ".".join(map(str, OLDEST_PYTHON))
        session.error(
            f"Python {sys.version.split()[0]} is too old: install {needed} or newer, and make .venv with it"
        )


def need_java(session: nox.Session) -> None:
    """End now, with what to install, if there is no Java for Kafka and Spark: before half a gigabyte is fetched."""
    need_python(session)
    package = ModuleType(
        "aioproducer"
    )  # its front door needs what is not installed yet; `jars` does not
    package.__path__ = [str(ROOT / "aioproducer")]
    sys.modules.setdefault("aioproducer", package)
    from aioproducer.testing.jars import JavaMissing, java

    try:
        session.log(f"Java: {java()}")
    except JavaMissing as error:
        session.error(str(error).rstrip("."))  # nox adds its own
