"""Fetches jars that Python packages do not contain: Kafka's broker, and Spark's Kafka connector; and finds Java.

1. A set of jars is fetched once, into a folder of the user's cache. The folder appears by one rename, so it is complete or absent.
2. Processes that need the same set at the same time wait for the first one (a lock file beside the folder).
3. Maven fetches the jars if it is installed, with the user's own settings. If it is not, or if it fails, the Ivy inside pyspark does.
   Ivy uses `DEFAULT_ARTIFACT_REPOSITORY` (pyspark's own variable), or Maven Central's mirror in the user's Maven settings, if either is
   given.

Versions are pinned, so the fetched jars are the tested ones.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, NamedTuple
from xml.etree import ElementTree as ET
from xml.sax.saxutils import quoteattr

from aioproducer.errors import ConfigError, KafkaError

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator, Sequence

__all__ = [
    "KAFKA_VERSION",
    "SPARK_VERSION",
    "JarsUnavailable",
    "JavaMissing",
    "cache_folder",
    "check_spark",
    "java",
    "kafka",
    "spark_connector",
]


KAFKA_VERSION: Final = "4.3.1"
SPARK_VERSION: Final = "4.2.0"
OLDEST_JAVA: Final = 17

# A slow connection needs minutes for 55 MB; a dead one must not block for ever.
_FETCH_SECONDS: Final = 900.0
_POLL_SECONDS: Final = 0.1
_LAST_LINES: Final = 15
_INSTALL_JAVA: Final = (
    f"Install a Java runtime, version {OLDEST_JAVA} or newer (Debian and Ubuntu: apt install openjdk-17-jre-headless; "
    "Fedora: dnf install java-21-openjdk-headless; macOS: brew install openjdk@17), and put it on PATH or set JAVA_HOME."
)


class JavaMissing(KafkaError):
    """Reports that no Java was found, or only one that is too old. The text names the Java that was found, and the one to install."""


class JarsUnavailable(KafkaError):
    """Reports that jars could not be fetched. The text has the last lines of output of the tools that tried."""


class _Coordinate(NamedTuple):
    group: str
    artifact: str
    version: str

    @property
    def file(self) -> str:
        return f"{self.artifact}-{self.version}.jar"


class _JarSet(NamedTuple):
    """Holds the jars that are fetched together. `transitive`: including their dependencies."""

    name: str
    title: str
    coordinates: tuple[_Coordinate, ...]
    transitive: bool
    size: str = ""


# Fetched one by one, without dependencies, because pyspark's own folder has the dependencies. Not every mirror has versions of the
# token provider after 4.0.0, and the connector works with 4.0.0 as well.
_SPARK_CONNECTOR: Final = _JarSet(
    name=f"spark-connector-{SPARK_VERSION}",
    title=f"Spark's Kafka connector {SPARK_VERSION}",
    coordinates=(
        _Coordinate("org.apache.spark", "spark-sql-kafka-0-10_2.13", SPARK_VERSION),
        _Coordinate("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
        _Coordinate("org.apache.kafka", "kafka-clients", "3.9.2"),
        _Coordinate("org.apache.commons", "commons-pool2", "2.12.1"),
    ),
    transitive=False,
    size="4 jars, 10 MB",
)


def _kafka_jars(version: str) -> _JarSet:
    if not re.fullmatch(r"[34]\.\d+\.\d+", version):
        raise ConfigError(
            f"no Kafka version that is known here: {version!r}; tested is {KAFKA_VERSION}"
        )
    # Kafka's POMs name no logging back end, and a broker without one logs nothing when it fails.
    logging = (
        (_Coordinate("org.slf4j", "slf4j-reload4j", "1.7.36"),)
        if version.startswith("3.")
        else tuple(
            _Coordinate("org.apache.logging.log4j", artifact, "2.25.5")
            for artifact in ("log4j-slf4j-impl", "log4j-core", "log4j-1.2-api")
        )
    )
    return _JarSet(
        name=f"kafka-{version}",
        title=f"Kafka {version}",
        coordinates=(
            _Coordinate("org.apache.kafka", "kafka_2.13", version),
            _Coordinate("org.apache.kafka", "kafka-tools", version),
            *logging,
        ),
        transitive=True,
        size={KAFKA_VERSION: "93 jars, 55 MB"}.get(version, "about 100 jars"),
    )


def kafka(version: str = KAFKA_VERSION, *, stop: threading.Event | None = None) -> Path:
    """Return the folder with the jars of a Kafka broker and its tools, fetched once. Blocks during the fetch.

    Args:
        version: Kafka's version, three numbers.
        stop: ends the fetch early if another thread sets it.

    Raises:
        ConfigError: there is no such version.
        JarsUnavailable: neither Maven nor Ivy could fetch the jars, or `stop` was set. No partial folder is left.
        JavaMissing: Ivy is needed, and there is no Java to run it.
    """
    return _fetched(_kafka_jars(version), stop)


def spark_connector(*, stop: threading.Event | None = None) -> tuple[Path, ...]:
    """Return the jars that pyspark needs beside its own to read and write Kafka, fetched once. Blocks during the fetch.

    Args:
        stop: ends the fetch early if another thread sets it.

    Raises:
        JarsUnavailable: neither Maven nor Ivy could fetch the jars, or `stop` was set. No partial folder is left.
        JavaMissing: Ivy is needed, and there is no Java to run it.
    """
    folder = _fetched(_SPARK_CONNECTOR, stop)
    return tuple(folder / coordinate.file for coordinate in _SPARK_CONNECTOR.coordinates)


def check_spark(version: str) -> None:
    """Check that the connector here is that of a pyspark.

    Raises:
        JarsUnavailable: it is of another version of Spark. The text says which pyspark has one, and what works without it.
    """
    if version != SPARK_VERSION:
        raise JarsUnavailable(
            f"pyspark {version} is installed, and the connector to read Kafka that is known here is that of {SPARK_VERSION}: "
            f"pip install 'pyspark=={SPARK_VERSION}', or make a session of your own with "
            f"spark.jars.packages=org.apache.spark:spark-sql-kafka-0-10_2.13:{version}, if Maven Central has that. "
            "format('aioproducer') writes without a connector, in any session: see aioproducer.spark.register."
        )


def cache_folder() -> Path:
    """Return the folder of fetched files: `AIOPRODUCER_CACHE`, or `aioproducer` in the user's cache folder of the platform."""
    if chosen := os.environ.get("AIOPRODUCER_CACHE"):
        return Path(chosen).absolute()
    if xdg := os.environ.get("XDG_CACHE_HOME"):
        return Path(xdg).absolute() / "aioproducer"
    if sys.platform == "win32":
        return (
            Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
            / "aioproducer"
        )
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "aioproducer"
    return Path.home() / ".cache" / "aioproducer"


# Java


def java() -> Path:
    """Return the path of the `java` that runs Kafka and Spark: that of JAVA_HOME if it is set (as in pyspark), else that on PATH.

    Raises:
        JavaMissing: there is no Java, or it is older than 17.
    """
    if home := os.environ.get("JAVA_HOME"):
        found = shutil.which("java", path=str(Path(home) / "bin"))
        if found is None:
            raise JavaMissing(f"JAVA_HOME is {home}, which has no bin/java. {_INSTALL_JAVA}")
    else:
        found = shutil.which("java")
        if found is None:
            raise JavaMissing(
                f"Java was not found: JAVA_HOME is not set, and no java is on PATH. {_INSTALL_JAVA}"
            )
    version = _java_version(found, Path(found).stat().st_mtime_ns)
    if version < OLDEST_JAVA:
        raise JavaMissing(
            f"Java {version} at {found} is too old: Kafka and Spark need {OLDEST_JAVA} or newer. {_INSTALL_JAVA}"
        )
    return Path(found)


@functools.lru_cache(maxsize=8)
def _java_version(path: str, _changed_at: int) -> int:
    try:
        answer = subprocess.run(
            [path, "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=60,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JavaMissing(f"{path} cannot be run: {error}. {_INSTALL_JAVA}") from error
    # Java prints its version to stderr, after the output that JAVA_TOOL_OPTIONS causes.
    text = answer.stderr + answer.stdout
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    if match is None:
        raise JavaMissing(
            f"{path} does not tell its version: {' '.join(text.split())[:200] or 'it prints nothing'}. {_INSTALL_JAVA}"
        )
    return int(match[1])


# Fetching


def _fetched(jars: _JarSet, stop: threading.Event | None) -> Path:
    folder = cache_folder() / "jars" / jars.name
    if folder.is_dir():
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _locked(folder.with_name(f"{jars.name}.lock"), jars, stop):
            if not folder.is_dir():
                _fetch(jars, folder, stop)
    except OSError as error:
        raise JarsUnavailable(
            f"{jars.title} cannot be kept in {folder.parent}: {error}. AIOPRODUCER_CACHE names another folder."
        ) from error
    return folder


def _fetch(jars: _JarSet, folder: Path, stop: threading.Event | None) -> None:
    # This process holds the lock, so the process that made these folders was killed.
    for stale in folder.parent.glob(f"{jars.name}.part-*"):
        shutil.rmtree(stale, ignore_errors=True)
    started_at = time.monotonic()
    failures = []
    for tool in _tools(jars):
        _say(f"fetching {jars.title} ({jars.size}) from Maven Central with {tool.name}, once ...")
        part = Path(tempfile.mkdtemp(prefix=f"{jars.name}.part-", dir=folder.parent))
        try:
            failure = tool.fetch(jars, part, stop)
            missing = [
                coordinate.file
                for coordinate in jars.coordinates
                if not (part / "jars" / coordinate.file).is_file()
            ]
            if failure is None and not missing:
                (part / "jars").rename(folder)
                _say(f"fetched {jars.title} into {folder} in {time.monotonic() - started_at:.1f} s")
                return
        finally:
            shutil.rmtree(part, ignore_errors=True)
        failures.append(
            f"{tool.name}: {failure or 'it ended well, but did not bring ' + ', '.join(missing)}"
        )
    raise JarsUnavailable(
        f"{jars.title} could not be fetched.\n"
        + "\n".join(failures)
        + "\nWhat to do: see that Maven Central can be reached. Behind a mirror, name it in Maven's settings.xml, or in the variable "
        f"DEFAULT_ARTIFACT_REPOSITORY. Or put the jars into {folder} yourself."
    )


def _say(line: str) -> None:
    sys.stderr.write(f"aioproducer: {line}\n")
    sys.stderr.flush()


class _Maven:
    """Runs the user's own Maven, with all its settings."""

    name = "mvn"

    def __init__(self, program: str) -> None:
        self._program = program

    def fetch(self, jars: _JarSet, part: Path, stop: threading.Event | None) -> str | None:
        pom = part / "pom.xml"
        pom.write_text(_pom(jars), encoding="utf-8")
        arguments = ["-B", "-q", "-f", str(pom), "dependency:copy-dependencies"]
        arguments += ["-DincludeScope=runtime", f"-DoutputDirectory={part / 'jars'}"]
        return _run([self._program, *arguments], part, stop)


class _Ivy:
    """Runs the Ivy inside pyspark. Ivy reads no Maven settings, so it gets the mirror as a setting of its own."""

    name = "pyspark's Ivy"

    def __init__(self, jar: Path) -> None:
        self._jar = jar

    def fetch(self, jars: _JarSet, part: Path, stop: threading.Event | None) -> str | None:
        module = part / "ivy.xml"
        module.write_text(_ivy_module(jars), encoding="utf-8")
        arguments = [
            "-jar",
            str(self._jar),
            "-cache",
            str(part / "cache"),
            "-ivy",
            str(module),
            "-confs",
            "default",
        ]
        if mirror := _mirror():
            settings = part / "ivysettings.xml"
            settings.write_text(_ivy_settings(mirror), encoding="utf-8")
            arguments += ["-settings", str(settings)]
        # Maven packages some plain jars as "bundle"; with "jar" alone Ivy would leave them out.
        arguments += [
            "-types",
            "jar",
            "bundle",
            "-retrieve",
            f"{part / 'jars'}/[artifact]-[revision].[ext]",
        ]
        return _run([str(java()), *arguments], part, stop)


def _tools(jars: _JarSet) -> Iterator[_Maven | _Ivy]:
    maven, ivy = shutil.which("mvn"), _ivy_jar()
    if maven is None and ivy is None:
        raise JarsUnavailable(
            f"{jars.title} cannot be fetched: neither Maven (mvn) nor pyspark, whose Ivy would do, is installed. "
            "Install one: apt install maven, brew install maven, or pip install 'aioproducer[spark]'."
        )
    if maven is not None:
        yield _Maven(maven)
    if ivy is not None:
        yield _Ivy(ivy)


def _ivy_jar() -> Path | None:
    # Finds the package without an import.
    spec = importlib.util.find_spec("pyspark")
    for place in spec.submodule_search_locations or () if spec else ():
        if found := sorted(Path(place, "jars").glob("ivy-*.jar")):
            return found[-1]
    return None


def _mirror() -> str | None:
    """Return the repository that replaces Maven Central, if the user names one."""
    if repository := os.environ.get("DEFAULT_ARTIFACT_REPOSITORY"):
        return repository
    settings = Path.home() / ".m2" / "settings.xml"
    try:
        root = ET.parse(settings).getroot()
    except FileNotFoundError:
        return None
    except (ET.ParseError, OSError) as error:
        _say(f"ignoring {settings}: {error}")
        return None
    urls = (
        (mirror.findtext("{*}url") or "").strip()
        for mirror in root.iterfind(".//{*}mirror")
        if _stands_for_central(mirror)
    )
    return next(filter(None, urls), None)


def _stands_for_central(mirror: ET.Element) -> bool:
    of = {name.strip() for name in (mirror.findtext("{*}mirrorOf") or "").split(",")}
    return "!central" not in of and not of.isdisjoint({"*", "central", "external:*"})


def _pom(jars: _JarSet) -> str:
    alone = (
        ""
        if jars.transitive
        else "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
    )
    dependencies = "\n".join(
        f"    <dependency><groupId>{jar.group}</groupId><artifactId>{jar.artifact}</artifactId><version>{jar.version}</version>{alone}</dependency>"
        for jar in jars.coordinates
    )
    return f"""<?xml version="1.0" encoding="UTF-8"?>
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>aioproducer</groupId>
  <artifactId>{jars.name}</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
{dependencies}
  </dependencies>
</project>
"""


def _ivy_module(jars: _JarSet) -> str:
    alone = "" if jars.transitive else ' transitive="false"'
    dependencies = "\n".join(
        f'    <dependency org="{jar.group}" name="{jar.artifact}" rev="{jar.version}"{alone}/>'
        for jar in jars.coordinates
    )
    return f"""<ivy-module version="2.0">
  <info organisation="aioproducer" module="{jars.name}" revision="1"/>
  <configurations><conf name="default"/></configurations>
  <dependencies defaultconf="default->default">
{dependencies}
  </dependencies>
</ivy-module>
"""


def _ivy_settings(mirror: str) -> str:
    return f"""<ivysettings>
  <settings defaultResolver="mirror"/>
  <resolvers><ibiblio name="mirror" m2compatible="true" root={quoteattr(mirror)}/></resolvers>
</ivysettings>
"""


# Processes and locks


def _run(command: Sequence[str], folder: Path, stop: threading.Event | None) -> str | None:
    """Run a command to its end, or kill it with its children. Returns None, or the reason of its failure with its last lines."""
    log = folder / "output.txt"
    with log.open("wb") as output:
        # A session of its own, because mvn is a script, and its Java process must end with it.
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            ended = _wait(process, stop)
        finally:
            if process.poll() is None:
                _kill(process)
    if ended and process.returncode == 0:
        return None
    lines = [
        line.rstrip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines()
    ]
    tail = "\n".join("  " + line for line in [line for line in lines if line][-_LAST_LINES:])
    return f"{f'exit status {process.returncode}' if ended else f'not done after {_FETCH_SECONDS:.0f} s'}\n{tail}"


def _wait(process: subprocess.Popen[bytes], stop: threading.Event | None) -> bool:
    deadline = time.monotonic() + _FETCH_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_POLL_SECONDS)
            return True
        _raise_if_stopped(stop)
    return False


def _kill(process: subprocess.Popen[bytes]) -> None:
    if sys.platform == "win32":
        process.kill()
    else:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _raise_if_stopped(stop: threading.Event | None) -> None:
    if stop is not None and stop.is_set():
        raise JarsUnavailable("the fetch was stopped by its caller")


@contextlib.contextmanager
def _locked(path: Path, jars: _JarSet, stop: threading.Event | None) -> Iterator[None]:
    """Hold the file's lock. The system frees it when a process dies, so a killed fetch blocks no other process."""
    with path.open("ab") as file:
        deadline = time.monotonic() + _FETCH_SECONDS
        said = False
        while not _try_lock(file):
            if not said:
                _say(f"another process is fetching {jars.title}; waiting for it ...")
                said = True
            if time.monotonic() > deadline:
                raise JarsUnavailable(f"another process has held {path} for {_FETCH_SECONDS:.0f} s")
            _raise_if_stopped(stop)
            time.sleep(_POLL_SECONDS)
        # Closing the file frees the lock.
        yield


if sys.platform == "win32":
    import msvcrt

    def _try_lock(file: IO[bytes]) -> bool:
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    def _try_lock(file: IO[bytes]) -> bool:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
