"""Jars are fetched once, whole or not at all; Java is found, or its absence is said clearly. Programs on PATH are small real scripts."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

from aioproducer.errors import ConfigError, KafkaError
from aioproducer.testing import jars

if TYPE_CHECKING:
    from pathlib import Path

KAFKA_JARS = (
    "kafka_2.13-4.3.1.jar",
    "kafka-tools-4.3.1.jar",
    "log4j-slf4j-impl-2.25.5.jar",
    "log4j-core-2.25.5.jar",
    "log4j-1.2-api-2.25.5.jar",
)

# Maven and Ivy as far as we use them: write empty jars where they are told to, and note the call
MAVEN = """
import json, os, pathlib, re, sys
folder = pathlib.Path(next(a for a in sys.argv if a.startswith("-DoutputDirectory=")).split("=", 1)[1])
pom = pathlib.Path(sys.argv[sys.argv.index("-f") + 1]).read_text()
jars = [f"{a}-{v}.jar" for a, v in re.findall("<artifactId>([^<]*)</artifactId><version>([^<]*)</version>", pom)]
"""
IVY = """
import json, os, pathlib, re, sys
if sys.argv[1:] == ["-version"]:
    sys.exit('openjdk version "17.0.1"')
folder = pathlib.Path(sys.argv[sys.argv.index("-retrieve") + 1]).parent
module = pathlib.Path(sys.argv[sys.argv.index("-ivy") + 1]).read_text()
jars = [f"{a}-{v}.jar" for a, v in re.findall('name="([^"]*)" rev="([^"]*)"', module)]
settings = pathlib.Path(sys.argv[sys.argv.index("-settings") + 1]).read_text() if "-settings" in sys.argv else ""
"""
FETCH = """
folder.mkdir(parents=True)
for jar in jars: (folder / jar).touch()
"""


class Tools:
    """A folder that is all of PATH, an empty cache, an empty home."""

    def __init__(self, folder: Path, environment: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.set = environment.setenv
        self.bin = folder / "bin"
        self.cache = folder / "cache"
        self.calls_file = folder / "calls"
        self.bin.mkdir()
        (folder / "home").mkdir()

    def install(self, name: str, program: str) -> Path:
        path = self.bin / name
        path.write_text(f"#!{sys.executable} -IS\n{textwrap.dedent(program)}")
        path.chmod(0o755)
        return path

    def install_fetching(self, name: str, then: str = FETCH) -> None:
        begin = MAVEN if name == "mvn" else IVY
        note = f"open({str(self.calls_file)!r}, 'a').write(json.dumps([{name!r}, locals().get('settings')]) + chr(10))\n"
        self.install(name, begin + note + then)

    @property
    def calls(self) -> list[list[str]]:
        return (
            [json.loads(line) for line in self.calls_file.read_text().splitlines()]
            if self.calls_file.exists()
            else []
        )

    @property
    def left(self) -> list[str]:
        """Return the names of the files in the cache, without lock files."""
        return sorted(
            path.name for path in (self.cache / "jars").iterdir() if path.suffix != ".lock"
        )


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tools:
    found = Tools(tmp_path, monkeypatch)
    monkeypatch.setenv("PATH", str(found.bin))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("AIOPRODUCER_CACHE", str(found.cache))
    for name in ("JAVA_HOME", "DEFAULT_ARTIFACT_REPOSITORY"):
        monkeypatch.delenv(name, raising=False)
    if (
        find_spec("pyspark") is None
    ):  # `nox -s pythons`: a folder with the one file of it that is looked for
        ivy = tmp_path / "site" / "pyspark" / "jars" / "ivy-2.5.jar"
        ivy.parent.mkdir(parents=True)
        ivy.touch()
        (ivy.parents[1] / "__init__.py").touch()
        monkeypatch.syspath_prepend(ivy.parents[2])
    return found


@pytest.fixture
def no_pyspark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)


def java_that_says(text: str) -> str:
    return f"import sys\nsys.stderr.write({text!r})\n"


# Java


def test_java_is_found_on_path(tools: Tools) -> None:
    """Without JAVA_HOME, the first `java` on PATH is taken."""
    program = tools.install("java", java_that_says('openjdk version "17.0.15" 2025-04-15\n'))
    assert jars.java() == program


@pytest.mark.parametrize(
    "said",
    [
        'openjdk version "21" 2023-09-19',
        'java version "24-ea" 2025-03-18',
        'openjdk version "17.0.1"',
    ],
)
def test_java_versions_in_all_their_spellings(tools: Tools, said: str) -> None:
    """The search reads two-digit, early-access and dotted versions, also behind the text that JAVA_TOOL_OPTIONS makes Java print."""
    program = tools.install(
        "java", java_that_says(f'Picked up JAVA_TOOL_OPTIONS: -Dversion="1"\n{said}\n')
    )
    assert jars.java() == program


@pytest.mark.parametrize(
    ("said", "version"),
    [('openjdk version "11.0.2"', "Java 11"), ('java version "1.8.0_352"', "Java 8")],
)
def test_java_too_old(tools: Tools, said: str, version: str) -> None:
    """The error names the version, where it was found, what is needed and how to get it."""
    program = tools.install("java", java_that_says(said))
    with pytest.raises(jars.JavaMissing) as caught:
        jars.java()
    for words in (
        version,
        str(program),
        "too old",
        "17 or newer",
        "apt install openjdk-17-jre-headless",
        "JAVA_HOME",
    ):
        assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_java_missing(tools: Tools) -> None:
    """No Java at all: the error says that neither place had one, and what to install."""
    with pytest.raises(
        jars.JavaMissing,
        match=r"JAVA_HOME is not set, and no java is on PATH\. Install a Java runtime, version 17",
    ):
        jars.java()


def test_java_home_wins_over_path(tools: Tools) -> None:
    """JAVA_HOME decides where it is set, as in pyspark, even if it is too old and PATH has a newer one."""
    home = tools.folder / "jdk"
    (home / "bin").mkdir(parents=True)
    old = tools.install("java", java_that_says('openjdk version "11.0.2"')).rename(
        home / "bin" / "java"
    )
    tools.install("java", java_that_says('openjdk version "17.0.2"'))
    tools.set("JAVA_HOME", str(home))
    with pytest.raises(jars.JavaMissing, match="Java 11 at " + str(old)):
        jars.java()


def test_java_home_without_java(tools: Tools) -> None:
    """A JAVA_HOME without Java is the error to show, even if PATH has one."""
    tools.install("java", java_that_says('openjdk version "17.0.2"'))
    tools.set("JAVA_HOME", str(tools.folder / "home"))
    with pytest.raises(jars.JavaMissing, match="which has no bin/java"):
        jars.java()


def test_java_that_is_only_a_stub(tools: Tools) -> None:
    """macOS has a `java` that only says that there is none: its words are handed on."""
    tools.install(
        "java",
        java_that_says("The operation couldn't be completed. Unable to locate a Java Runtime.\n"),
    )
    with pytest.raises(jars.JavaMissing, match="Unable to locate a Java Runtime"):
        jars.java()


# where


def test_cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """AIOPRODUCER_CACHE before XDG_CACHE_HOME before the platform's own place."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("AIOPRODUCER_CACHE", str(tmp_path / "own"))
    assert jars.cache_folder() == tmp_path / "own"
    monkeypatch.delenv("AIOPRODUCER_CACHE")
    assert jars.cache_folder() == tmp_path / "xdg" / "aioproducer"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert jars.cache_folder().is_relative_to(tmp_path)
    assert jars.cache_folder().name == "aioproducer"


# fetching


def test_second_call_does_no_work(tools: Tools, capfd: pytest.CaptureFixture[str]) -> None:
    """The first call fetches and prints two messages on stderr. From then on the folder is there, and nothing is run or printed."""
    tools.install_fetching("mvn")
    folder = jars.kafka()
    assert folder == tools.cache / "jars" / "kafka-4.3.1"
    assert sorted(path.name for path in folder.iterdir()) == sorted(KAFKA_JARS)
    begin, end = capfd.readouterr().err.splitlines()
    assert (
        begin
        == "aioproducer: fetching Kafka 4.3.1 (93 jars, 55 MB) from Maven Central with mvn, once ..."
    )
    assert end.startswith(f"aioproducer: fetched Kafka 4.3.1 into {folder} in ")
    assert jars.kafka() == folder
    assert len(tools.calls) == 1
    assert capfd.readouterr() == ("", "")


def test_spark_connector_is_four_pinned_jars(tools: Tools) -> None:
    """The jars in the order in which they are named, each alone."""
    tools.install_fetching("mvn")
    found = jars.spark_connector()
    assert [path.name for path in found] == [
        "spark-sql-kafka-0-10_2.13-4.2.0.jar",
        "spark-token-provider-kafka-0-10_2.13-4.0.0.jar",
        "kafka-clients-3.9.2.jar",
        "commons-pool2-2.12.1.jar",
    ]
    assert all(path.is_file() for path in found)


def test_older_kafka_gets_the_logging_of_its_time(tools: Tools) -> None:
    """Kafka 3 logs through reload4j, 4 through log4j 2."""
    tools.install_fetching("mvn")
    assert sorted(path.name for path in jars.kafka("3.9.2").iterdir()) == [
        "kafka-tools-3.9.2.jar",
        "kafka_2.13-3.9.2.jar",
        "slf4j-reload4j-1.7.36.jar",
    ]


@pytest.mark.parametrize("version", ["", "4", "4.3.1/../../x", "latest", "5.0.0"])
def test_unknown_kafka_version(tools: Tools, version: str) -> None:
    """A version that is not one becomes no path and no request."""
    with pytest.raises(ConfigError, match="no Kafka version"):
        jars.kafka(version)


def test_ivy_where_maven_is_not(tools: Tools, capfd: pytest.CaptureFixture[str]) -> None:
    """Without mvn, the Ivy inside pyspark is run by Java."""
    tools.install_fetching("java")
    assert sorted(path.name for path in jars.kafka().iterdir()) == sorted(KAFKA_JARS)
    assert "with pyspark's Ivy, once ..." in capfd.readouterr().err


def test_ivy_after_a_maven_that_fails(tools: Tools) -> None:
    """A broken Maven is not the end."""
    tools.install("mvn", "import sys; sys.exit(1)")
    tools.install_fetching("java")
    assert (jars.kafka() / "kafka_2.13-4.3.1.jar").is_file()
    assert tools.left == ["kafka-4.3.1"]


def test_failure_shows_each_tools_last_lines(tools: Tools) -> None:
    """The error names each tool, its words and a remedy. Nothing half-fetched stays."""
    tools.install_fetching(
        "mvn",
        FETCH + "print(*range(100), sep=chr(10)); sys.exit('[ERROR] Could not transfer artifact')",
    )
    tools.install_fetching("java", "sys.exit('UNRESOLVED DEPENDENCIES')")
    with pytest.raises(jars.JarsUnavailable) as caught:
        jars.kafka()
    text = str(caught.value)
    for words in (
        "Kafka 4.3.1",
        "mvn: exit status 1",
        "[ERROR] Could not transfer artifact",
        "UNRESOLVED DEPENDENCIES",
        "What to do:",
    ):
        assert words in text
    assert "\n  99\n" in text
    assert "\n  50\n" not in text
    assert tools.left == []
    assert isinstance(caught.value, KafkaError)


@pytest.mark.usefixtures("no_pyspark")
def test_neither_maven_nor_pyspark(tools: Tools) -> None:
    """Nothing that could fetch: the error says what to install."""
    with pytest.raises(
        jars.JarsUnavailable, match=r"neither Maven .* nor pyspark.*apt install maven.*pip install"
    ):
        jars.kafka()


@pytest.mark.usefixtures("no_pyspark")
def test_tool_that_brings_too_little(tools: Tools) -> None:
    """Success counts only with every jar that was asked for."""
    tools.install_fetching("mvn", "jars.remove('kafka-tools-4.3.1.jar')\n" + FETCH)
    with pytest.raises(jars.JarsUnavailable, match=r"did not bring kafka-tools-4\.3\.1\.jar"):
        jars.kafka()
    assert tools.left == []


def test_leftovers_of_a_killed_fetch_go(tools: Tools) -> None:
    """A process that was killed while it fetched leaves its folder; the next fetch removes it, and trusts nothing in it."""
    tools.install_fetching("mvn")
    stale = tools.cache / "jars" / "kafka-4.3.1.part-killed"
    stale.mkdir(parents=True)
    jars.kafka()
    assert tools.left == ["kafka-4.3.1"]


@pytest.mark.usefixtures("no_pyspark")
def test_stopped_fetch_ends_its_processes(tools: Tools) -> None:
    """`stop` kills the tool and the tool's child, and leaves nothing."""
    pipe = tools.folder / "pipe"
    os.mkfifo(pipe)
    holder = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    # both processes hold the pipe's writing end; its end of file shows that both are gone
    tools.install(
        "mvn",
        f"import os, signal\nfd = os.open({str(pipe)!r}, os.O_WRONLY)\nos.fork()\nos.write(fd, b'x')\nsignal.pause()\n",
    )
    stop = threading.Event()
    failures: list[BaseException] = []

    def fetch() -> None:
        try:
            jars.kafka(stop=stop)
        except jars.JarsUnavailable as error:
            failures.append(error)

    thread = threading.Thread(target=fetch)
    thread.start()
    os.set_blocking(holder, True)
    with os.fdopen(holder, "rb", buffering=0) as reader:
        started = b""
        while len(started) < 2:
            started += reader.read(1)
        stop.set()
        assert reader.read() == b""
    thread.join()
    assert "stopped by its caller" in str(failures[0])
    assert tools.left == []


def test_folder_that_cannot_be_written(tools: Tools) -> None:
    """A cache that is no folder: the error names it, and the variable that names another."""
    tools.cache.write_text("in the way")
    with pytest.raises(
        jars.JarsUnavailable, match=r"cannot be kept in .*AIOPRODUCER_CACHE names another folder"
    ):
        jars.kafka()


# several processes

CALL = "from aioproducer.testing import jars; print(jars.kafka())"


def test_concurrent_fetches_are_one(tools: Tools) -> None:
    """The second process waits for the first one's fetch, says so, and finds it done."""
    gate = tools.folder / "gate"
    os.mkfifo(gate)
    tools.install_fetching("mvn", f"open({str(gate)!r}).read()\n" + FETCH)
    first = spawn()
    assert "fetching Kafka" in read_line(first)
    second = spawn()
    assert (
        read_line(second)
        == "aioproducer: another process is fetching Kafka 4.3.1; waiting for it ...\n"
    )
    gate.write_text("go")
    folders = {first.communicate(timeout=60)[0].strip(), second.communicate(timeout=60)[0].strip()}
    assert folders == {str(tools.cache / "jars" / "kafka-4.3.1")}
    assert len(tools.calls) == 1


def test_lock_of_a_killed_process_is_free(tools: Tools) -> None:
    """A process that is killed while it fetches blocks no other process."""
    gate = tools.folder / "gate"
    os.mkfifo(gate)
    tools.install_fetching(
        "mvn", f"if 'HOLD' in os.environ: open({str(gate)!r}).read(); sys.exit()\n" + FETCH
    )
    first = spawn(HOLD="1")
    with gate.open("w"):  # opens when the first one's mvn is there, and lets it go at the end
        first.send_signal(signal.SIGKILL)
        first.communicate()
        second = spawn()
        assert second.communicate(timeout=60)[0].strip() == str(
            tools.cache / "jars" / "kafka-4.3.1"
        )


def spawn(**environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", CALL],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )


def read_line(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    return process.stderr.readline()


# mirrors

MIRRORS = """<settings xmlns="http://maven.apache.org/SETTINGS/1.0.0"><mirrors>
  <mirror><id>a</id><mirrorOf>*,!central</mirrorOf><url>https://not-this.example/</url></mirror>
  <mirror><id>b</id><mirrorOf>{of}</mirrorOf><url> https://mirror.example/m2?a&amp;b </url></mirror>
</mirrors></settings>"""


@pytest.mark.parametrize("of", ["central", "*", "external:*", "other, central"])
def test_ivy_is_handed_mavens_mirror(tools: Tools, of: str) -> None:
    """A mirror of Maven Central in the user's Maven settings is where Ivy looks, with or without Maven being installed."""
    tools.install_fetching("java")
    settings(tools, MIRRORS.format(of=of))
    jars.kafka()
    assert 'root="https://mirror.example/m2?a&amp;b"' in tools.calls[0][1]


def test_variable_before_mavens_mirror(tools: Tools) -> None:
    """pyspark's own variable for a repository holds here, too, and decides."""
    tools.install_fetching("java")
    settings(tools, MIRRORS.format(of="*"))
    tools.set("DEFAULT_ARTIFACT_REPOSITORY", "https://other.example/")
    jars.kafka()
    assert 'root="https://other.example/"' in tools.calls[0][1]


def test_mirrors_of_other_repositories_are_not_central(tools: Tools) -> None:
    """Mirrors of other repositories are left alone."""
    tools.install_fetching("java")
    settings(tools, MIRRORS.format(of="jboss"))
    jars.kafka()
    assert tools.calls[0][1] == ""


def test_broken_maven_settings_are_said(tools: Tools, capfd: pytest.CaptureFixture[str]) -> None:
    """Settings that cannot be read are named, and the fetch goes on without them."""
    tools.install_fetching("java")
    settings(tools, "<settings>")
    jars.kafka()
    assert "aioproducer: ignoring" in capfd.readouterr().err


def settings(tools: Tools, text: str) -> None:
    folder = tools.folder / "home" / ".m2"
    folder.mkdir()
    (folder / "settings.xml").write_text(text)


# the real tools

REAL_JAVA = shutil.which("java")
needs_java = pytest.mark.skipif(REAL_JAVA is None, reason="no java on PATH")


@needs_java
@pytest.mark.integration
def test_real_ivy_fetches_from_a_mirror(tools: Tools) -> None:
    """pyspark's Ivy takes our module and settings: four jars out of a repository in a folder, and what they depend on left out."""
    pytest.importorskip("pyspark", reason="Ivy is inside pyspark")
    repository = tools.folder / "repository"
    for group, name in (
        ("org/apache/spark", "spark-sql-kafka-0-10_2.13-4.2.0"),
        ("org/apache/spark", "spark-token-provider-kafka-0-10_2.13-4.0.0"),
        ("org/apache/kafka", "kafka-clients-3.9.2"),
        ("org/apache/commons", "commons-pool2-2.12.1"),
    ):
        artifact, _, version = name.rpartition("-")
        folder = repository / group / artifact / version
        folder.mkdir(parents=True)
        (folder / f"{name}.jar").write_bytes(b"jar")
        (folder / f"{name}.pom").write_text(
            f"<project><modelVersion>4.0.0</modelVersion><groupId>{group.replace('/', '.')}</groupId><artifactId>{artifact}</artifactId>"
            f"<version>{version}</version><dependencies><dependency><groupId>nobody</groupId><artifactId>has-this</artifactId>"
            "<version>1</version></dependency></dependencies></project>"
        )
    tools.set("DEFAULT_ARTIFACT_REPOSITORY", repository.as_uri())
    (tools.bin / "java").symlink_to(REAL_JAVA or "")
    assert [path.read_bytes() for path in jars.spark_connector()] == [b"jar"] * 4


@needs_java
@pytest.mark.integration
@pytest.mark.parametrize("tool", ["mvn", "ivy"] if shutil.which("mvn") else ["ivy"])
def test_real_fetch(
    tool: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Either tool brings Spark's connector from where this machine is configured to look."""
    if tool == "ivy":
        (tmp_path / "java").symlink_to(REAL_JAVA or "")
        monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("AIOPRODUCER_CACHE", str(tmp_path / "cache"))
    sizes = [path.stat().st_size for path in jars.spark_connector()]
    assert min(sizes) > 50_000
    assert ("with mvn" in capfd.readouterr().err) == (tool == "mvn")
