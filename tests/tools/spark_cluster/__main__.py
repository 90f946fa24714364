"""Tries the sink where the package comes to executors in different ways, and with other versions of pyspark.

    python -m tests.tools.spark_cluster [venv archives zip]              # a standalone Spark of two workers; default: all three
    python -m tests.tools.spark_cluster pysparks [4.1.4 4.3.0]           # local[2], in an environment of each version, without a connector

Each way runs `smoke.py` against a real Kafka, and librdkafka's consumer counts its three topics. Exit status 1 when a row is lost or
doubled.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console

from aioproducer.testing import KafkaServer
from tests.tools.spark_cluster.environments import DEPENDENCIES, environment, packed, wheel
from tests.tools.spark_cluster.standalone import Standalone
from tests.tools.spark_faults.count import count

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_ROWS: Final = 1_000
_PARTITIONS: Final = 3
_SECONDS: Final = 240.0
_SMOKE: Final = Path(__file__).with_name("smoke.py")
_PYSPARK: Final = "pyspark==4.2.0"
_VERSIONS: Final = ("4.1.4", "4.3.0")
_SMALL: Final = {"spark.executor.memory": "512m", "spark.driver.memory": "512m"}


class Trial:
    """Holds where the trials run.

    Args:
        folder: for environments and files.
        kafka: the running Kafka.
        console: shows what each trial came to.
    """

    def __init__(self, folder: Path, kafka: KafkaServer, console: Console) -> None:
        self.folder = folder
        self._kafka = kafka
        self._console = console

    async def smoke(self, name: str, python: Path | str, **told: Any) -> bool:
        """Run the user's program, and count. Returns whether all rows are there once.

        Args:
            name: the trial's.
            python: the driver's Python, or the whole command before the program.
            told: for `CONFIG.json`; `env`: added to the driver's environment; `unpacked`: an archive, unpacked in the driver's folder.
        """
        began = time.monotonic()
        place = self.folder / f"run-{name}"
        place.mkdir()
        if "unpacked" in told:
            await asyncio.to_thread(shutil.unpack_archive, told.pop("unpacked"), place / "environment")
        topics = [f"{name}-{what}".replace(".", "-") for what in ("batch", "named", "stream")]
        for topic in topics:
            await self._kafka.create_topic(topic, _PARTITIONS)
        env = {key: value for key, value in os.environ.items() if key not in {"PYTHONPATH", "PYSPARK_PYTHON", "SPARK_HOME"}}
        env |= {"SPARK_LOCAL_IP": "127.0.0.1", **told.pop("env", {})}
        config = {"bootstrap_servers": self._kafka.bootstrap_servers, "topics": topics, "rows": _ROWS, "folder": str(place), **told}
        (place / "config.json").write_text(json.dumps(config), encoding="utf-8")
        # not in this tree: what is imported is what the environments have
        process = await asyncio.create_subprocess_exec(
            *(str(python), str(_SMOKE), str(place / "config.json")),
            cwd=place,
            env=env,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(_SECONDS):
                said, complaints = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        counts = [await asyncio.to_thread(count, self._kafka.bootstrap_servers, topic, _ROWS, seconds=5.0) for topic in topics]
        is_right = process.returncode == 0 and all(one.is_right for one in counts)
        last = said.decode().splitlines()[-1:] or ["(nothing)"]
        shown = " ".join(
            f"{topic}: {one.records} records, {one.lost} lost, {one.doubled} doubled;" for topic, one in zip(topics, counts, strict=True)
        )
        self._console.print(
            f"{name}: {'right' if is_right else 'WRONG'}, {time.monotonic() - began:.0f} s. {shown} {last[0]}", markup=False
        )
        if not is_right:
            # without the frames of Java, of which there are hundreds
            lines = [line for line in complaints.decode(errors="replace").splitlines() if not re.match(r"\s+(at |\.\.\. )", line)]
            self._console.print("\n".join(lines)[-6000:], markup=False)
        return is_right


async def by_venv(trial: Trial, compiled: Path) -> bool:
    """The wheel is in the environment that executors run: PYSPARK_PYTHON. It stands for an image."""
    python = await asyncio.to_thread(environment, trial.folder / "venv", [f"{compiled}[arrow]", _PYSPARK])
    async with _spark(trial, "venv") as cluster:
        return await trial.smoke("venv", python, master=cluster.url, conf=_SMALL, env={"PYSPARK_PYTHON": str(python)})


async def by_archive(trial: Trial, compiled: Path) -> bool:
    """The environment travels as an archive, which Spark unpacks beside each executor.

    The driver runs PYSPARK_PYTHON as well, to make and to end a write: it must have the archive unpacked where it starts.
    """
    driver = await asyncio.to_thread(environment, trial.folder / "driver", [f"{compiled}[arrow]", _PYSPARK])
    packing = await asyncio.to_thread(environment, trial.folder / "packed", [f"{compiled}[arrow]", "venv-pack", "setuptools<81"])
    archive = trial.folder / "environment.tar.gz"
    await asyncio.to_thread(packed, packing, archive)
    conf = _SMALL | {"spark.archives": f"{archive}#environment"}
    async with _spark(trial, "archives") as cluster:
        return await trial.smoke(
            "archives", driver, master=cluster.url, conf=conf, unpacked=archive, env={"PYSPARK_PYTHON": "./environment/bin/python"}
        )


async def by_zip(trial: Trial, _compiled: Path) -> bool:
    """The plain wheel travels by addPyFile; executors have only what it imports."""
    plain = trial.folder / "plain"
    made = await asyncio.to_thread(wheel, plain, is_plain=True)
    zipped = made.with_suffix(".zip")
    shutil.copy(made, zipped)
    driver = await asyncio.to_thread(environment, trial.folder / "zip-driver", [*DEPENDENCIES, _PYSPARK])
    executors = await asyncio.to_thread(environment, trial.folder / "zip-executors", DEPENDENCIES)
    async with _spark(trial, "zip") as cluster:
        told = {"master": cluster.url, "conf": _SMALL, "py_files": [str(zipped)]}
        return await trial.smoke("zip", driver, **told, env={"PYSPARK_PYTHON": str(executors)})


WAYS: Final[dict[str, Callable[[Trial, Path], Any]]] = {"venv": by_venv, "archives": by_archive, "zip": by_zip}


def _spark(trial: Trial, name: str) -> Standalone:
    folder = trial.folder / f"spark-{name}"
    folder.mkdir()
    # without a word of where Python is: the driver says it
    return Standalone(folder)


async def with_version(trial: Trial, compiled: Path, version: str) -> bool:
    """The sink in a pyspark of this version, of its own."""
    python = await asyncio.to_thread(environment, trial.folder / f"pyspark-{version}", [f"{compiled}[arrow]", f"pyspark=={version}"])
    return await trial.smoke(version, python, conf={"spark.driver.memory": "512m"}, env={"PYSPARK_PYTHON": str(python)})


async def run(names: Sequence[str], versions: Sequence[str], console: Console) -> bool:
    with tempfile.TemporaryDirectory(prefix="spark-cluster-", ignore_cleanup_errors=True) as made:
        folder = Path(made)
        console.print("building the wheel")
        compiled = await asyncio.to_thread(wheel, folder / "compiled")
        async with KafkaServer() as kafka:
            trial = Trial(folder, kafka, console)
            results = [await WAYS[name](trial, compiled) for name in names]
            results += [await with_version(trial, compiled, version) for version in versions]
    return all(results)


def main(words: Sequence[str]) -> int:
    console = Console(highlight=False)
    console.width = max(console.width, 140)  # a log has no width of its own
    if words[:1] == ["pysparks"]:
        return 0 if asyncio.run(run((), words[1:] or _VERSIONS, console)) else 1
    parser = argparse.ArgumentParser(prog="python -m tests.tools.spark_cluster")
    parser.add_argument("ways", nargs="*", metavar="WAY", help=", ".join(WAYS))
    chosen = parser.parse_args(words)
    unknown = sorted(set(chosen.ways) - set(WAYS))
    if unknown:
        parser.error(f"there is no way {', '.join(unknown)}")
    return 0 if asyncio.run(run(chosen.ways or list(WAYS), (), console)) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
