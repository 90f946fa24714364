"""Programs that take aioproducer along: frozen by PyInstaller, or with the package's folder beside them and no distribution installed."""

from __future__ import annotations

import asyncio
import importlib.metadata
import os
import pathlib
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

import aioproducer
from aioproducer.build import NOT_INSTALLED
from aioproducer.testing import FakeCluster

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PACKAGE = pathlib.Path(aioproducer.__file__).parent  # installed, it is not in the tree
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PROGRAM = f"""
import asyncio, sys
import aioproducer

async def main():
    for codec in {CODECS}:
        async with aioproducer.Producer(bootstrap_servers=sys.argv[1], compression_type=codec) as producer:
            await producer.send_and_wait("orders", codec.encode() * 100)
    print(aioproducer.__version__, aioproducer.build_info().reason)

asyncio.run(asyncio.wait_for(main(), 60))
"""
DEPENDENCIES = ("anyio", "cramjam", "crc32c", "idna", "lz4", "typing_extensions", "zstandard")


async def sent_by(
    words: Sequence[str], environment: Mapping[str, str]
) -> tuple[list[bytes | None], str]:
    """Run a program with the address of a FakeCluster. Return the values that it sent, and what it printed."""
    async with FakeCluster() as cluster:
        cluster.create_topic("orders")
        process = await asyncio.create_subprocess_exec(
            *words,
            cluster.bootstrap_servers,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environment,
        )
        output, errors = await asyncio.wait_for(process.communicate(), 90)
        assert process.returncode == 0, errors.decode()
        return [
            record.value for record in cluster.log("orders", 0).records()
        ], output.decode().strip()


def clean(**more: str) -> dict[str, str]:
    """The environment of a program that knows neither this tree nor a choice of build."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("AIOPRODUCER_", "PYTHON"))
    }
    return {**kept, **more}


VALUES = [codec.encode() * 100 for codec in CODECS]


TELL = "import aioproducer; print(aioproducer.__version__, aioproducer.build_info().reason)"


def as_here(**environment: str) -> str:
    """Return what the package prints here: its version, and why it runs plain Python, if it does."""
    words = [sys.executable, "-P", "-c", TELL]
    return subprocess.check_output(
        words, env=clean(PYTHONPATH=str(PACKAGE.parent), **environment), text=True
    ).strip()


@pytest.mark.slow
@pytest.mark.asyncio
@pytest.mark.parametrize("kind", ["--onedir", "--onefile"])
async def test_a_frozen_program_sends(tmp_path: pathlib.Path, kind: str) -> None:
    """With PyInstaller's defaults: in the build that was compiled here, with every codec, and with the choice of plain Python."""
    (tmp_path / "program.py").write_text(PROGRAM)
    words = [
        sys.executable,
        "-m",
        "PyInstaller",
        "--log-level=WARN",
        kind,
        f"--paths={PACKAGE.parent}",
        "program.py",
    ]
    done = subprocess.run(  # noqa: ASYNC221
        words, cwd=tmp_path, env=clean(), capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    program = str(tmp_path / "dist/program" / ("program" if kind == "--onedir" else ""))
    assert await sent_by([program], clean()) == (VALUES, as_here())
    assert await sent_by([program], clean(AIOPRODUCER_PURE="1")) == (
        VALUES,
        as_here(AIOPRODUCER_PURE="1"),
    )
    taken = {
        path.name.partition("-")[0] for path in (tmp_path / "dist").rglob("*") if path.is_dir()
    }
    assert not taken & {
        "pyarrow",
        "pyspark",
        "pandas",
        "matplotlib",
    }  # which the program does not use


@pytest.mark.asyncio
async def test_a_vendored_copy_sends(tmp_path: pathlib.Path) -> None:
    """The package's folder beside its dependencies, no site-packages: there is no distribution that could say its version."""
    shutil.copytree(
        PACKAGE, tmp_path / "aioproducer", ignore=shutil.ignore_patterns("__pycache__", "*.pyx")
    )
    for name in DEPENDENCIES:
        spec = find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        origin = pathlib.Path(spec.origin)
        source = origin.parent if origin.name.startswith("__init__.") else origin
        (tmp_path / source.name).symlink_to(source)
    read = importlib.metadata.distribution("crc32c").locate_file(
        f"crc32c-{importlib.metadata.version('crc32c')}.dist-info"
    )
    (tmp_path / pathlib.Path(str(read)).name).symlink_to(str(read))
    # a copy without a distribution cannot say what was installed
    expected = re.sub(f"(?<={NOT_INSTALLED}): .*", "", as_here())
    assert await sent_by(
        [sys.executable, "-S", "-P", "-c", PROGRAM], clean(PYTHONPATH=str(tmp_path))
    ) == (VALUES, expected)
