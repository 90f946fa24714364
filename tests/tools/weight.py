"""The weight of a producer beside aiokafka's: CPU of the import, installed size part by part, and memory of an idle producer.

    python -m tests.tools.weight [--rounds 15] [--python PATH]

It builds the wheel, and installs it and aiokafka with pip into an environment of their own, where no editable installation takes part; or it
measures in the environment of the Python that `--python` names. All are measured in one run, in turns, and the minimum counts: on a busy
machine, compare the columns. The broker of the idle producers is a fake one in another process.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import venv
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT: Final = pathlib.Path(__file__).parents[2]
PEER: Final = ("aiokafka==0.14.0", "cramjam>=2.8")
OURS: Final = ("aioproducer", "anyio", "idna", "typing-extensions", "crc32c", "lz4", "zstandard")
THEIRS: Final = ("aiokafka", "async-timeout", "typing-extensions", "packaging", "cramjam")
SMALL: Final = ("aioproducer", "anyio", "idna", "typing-extensions", "cramjam")
BARE: Final = "pass"
IMPORTS: Final = {
    "Python alone": BARE,
    "asyncio": "import asyncio",
    "aioproducer.Producer": "from aioproducer import Producer",
    "aiokafka.AIOKafkaProducer": "from aiokafka import AIOKafkaProducer",
}
# Prints the bytes of each file of each distribution, without and with bytecode.
SIZES: Final = """
import importlib.metadata, json, sys
sizes = {}
for distribution in importlib.metadata.distributions():
    files = [(str(path), path.locate().stat().st_size) for path in distribution.files or () if path.locate().is_file()]
    compiled = sum(size for name, size in files if name.endswith(".pyc"))
    sizes[distribution.name.lower().replace("_", "-")] = sum(size for _, size in files) - compiled, compiled
print(json.dumps(sizes))
"""
# Makes producers that each send a record, and prints by how many KiB the memory of the process grew.
IDLE: Final = """
import asyncio, sys

def resident():
    with open("/proc/self/smaps_rollup") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("Rss"))

async def main(which, servers, count):
    before = resident()
    if which == "aioproducer":
        from aioproducer import Producer as Made
    else:
        from aiokafka import AIOKafkaProducer as Made
    made = []
    for _ in range(count):
        made.append(Made(bootstrap_servers=servers))
        await made[-1].start()
        await made[-1].send_and_wait("t", b"x")
    print(resident() - before)
    for one in made:
        await one.stop()

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""
BROKER: Final = """
import asyncio
from aioproducer.testing import FakeCluster

async def main():
    async with FakeCluster(version="2.8.1") as cluster:
        cluster.create_topic("t", 1)
        print(cluster.bootstrap_servers, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


def clean() -> dict[str, str]:
    """The environment, without what would change imports; bytecode is written, as in any installation."""
    left_out = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE")
    return {name: value for name, value in os.environ.items() if name not in left_out and not name.startswith("AIOPRODUCER_")}


def output(*words: str, cwd: pathlib.Path) -> str:
    return subprocess.run(words, cwd=cwd, env=clean(), check=True, stdout=subprocess.PIPE, text=True).stdout


def installed(folder: pathlib.Path) -> str:
    """Install the wheel of this tree and the peer, and return the Python that has both."""
    output(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder / "wheels"), str(ROOT), cwd=folder)
    [wheel] = (folder / "wheels").glob("*.whl")
    venv.create(folder / "env", with_pip=True)
    python = str(folder / "env/bin/python")
    output(python, "-m", "pip", "install", "-q", str(wheel), *PEER, cwd=folder)
    return python


def cpu_of(python: str, code: str, folder: pathlib.Path) -> float:
    """The CPU time of a process in ms."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    output(python, "-c", code, cwd=folder)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def imports(python: str, rounds: int, folder: pathlib.Path) -> dict[str, float]:
    """The CPU time of each import in ms, above Python alone."""
    best = dict.fromkeys(IMPORTS, float("inf"))
    for _ in range(rounds):
        for name, code in IMPORTS.items():
            best[name] = min(best[name], cpu_of(python, code, folder))
    return {name: cpu - best["Python alone"] for name, cpu in best.items() if name != "Python alone"}


def idle(python: str, rounds: int, folder: pathlib.Path) -> dict[tuple[str, int], float]:
    """The growth of memory in MiB, by kind and number of producers, imports included."""
    best: dict[tuple[str, int], float] = {}
    broker = subprocess.Popen([python, "-c", BROKER], cwd=folder, env=clean(), stdout=subprocess.PIPE, text=True)
    try:
        assert broker.stdout is not None
        servers = broker.stdout.readline().strip()
        for _ in range(rounds):
            for key in ((kind, count) for kind in ("aioproducer", "aiokafka") for count in (1, 10)):
                grown = int(output(python, "-c", IDLE, key[0], servers, str(key[1]), cwd=folder)) / 1024
                best[key] = min(best.get(key, grown), grown)
    finally:
        broker.kill()
        broker.wait()
    return best


def size_lines(sizes: dict[str, tuple[int, int]], title: str, parts: Sequence[str]) -> Iterator[str]:
    """The lines of a table: each part in MB, without bytecode, and with what pip writes of it."""
    yield f"\n{title:34}{'files, MB':>12}{'with bytecode, MB':>20}"
    rows = [(name, *sizes[name]) for name in parts if name in sizes]
    rows.append(("in all", sum(row[1] for row in rows), sum(row[2] for row in rows)))
    for name, files, compiled in rows:
        yield f"  {name:32}{files / 1e6:12.1f}{(files + compiled) / 1e6:20.1f}"


def report(python: str, rounds: int, folder: pathlib.Path) -> Iterator[str]:
    """All tables, line by line."""
    yield f"{'import, above Python alone':34}{'CPU, ms':>12}{'/ aiokafka':>20}"
    found = imports(python, rounds, folder)
    for name, cpu in found.items():
        yield f"  {name:32}{cpu:12.0f}{cpu / found['aiokafka.AIOKafkaProducer']:20.2f}"
    sizes = json.loads(output(python, "-c", SIZES, cwd=folder))
    yield from size_lines(sizes, "installed by pip", OURS)
    yield from size_lines(sizes, "aioproducer without dependencies", SMALL)
    yield from size_lines(sizes, "aiokafka with its codecs", THEIRS)
    yield f"\n{'memory of idle producers':34}{'one, MiB':>12}{'ten, MiB':>20}"
    grown = idle(python, max(rounds // 4, 1), folder)
    for kind in ("aioproducer", "aiokafka"):
        yield f"  {kind:32}{grown[kind, 1]:12.1f}{grown[kind, 10]:20.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15, help="runs of each import")
    parser.add_argument("--python", help="an environment that has aioproducer, aiokafka and their dependencies")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for line in report(arguments.python or installed(folder), arguments.rounds, folder):
            print(line, flush=True)


if __name__ == "__main__":
    main()
