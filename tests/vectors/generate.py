"""Make vectors.json anew, with Kafka's own record classes: `python tests/vectors/generate.py`, where a JDK is (17 or newer).

The jars are fetched once, as for `KafkaServer`. The file is compact text, one vector a line:

    cases      name -> base offset, log append time (-1: none), and records: [timestamp, key, value, [[header, value], ...]]
    vectors    magic, codec and case, and what Kafka wrote of it ("hex"), or why it would not ("refused")

Bytes are hex; [hex, times] is a value that repeats.
"""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

from aioproducer.testing import jars

KAFKA = "3.9.2"  # the last that reads and writes all three formats
HERE = pathlib.Path(__file__).parent
PROGRAM = HERE / "KafkaVectors.java"
VECTORS = HERE / "vectors.json"


def run(mode: str, given: str = "") -> list[str]:
    """The lines that Kafka's side prints.

    Raises:
        JavaMissing, JarsUnavailable: what it needs is not here.
        RuntimeError: it failed; a Java runtime without a compiler does.
    """
    command = [
        str(jars.java()),
        "-XX:TieredStopAtLevel=1",
        "-cp",
        f"{jars.kafka(KAFKA)}/*",
        str(PROGRAM),
        mode,
    ]
    done = subprocess.run(
        command, input=given, capture_output=True, text=True, check=False, timeout=300
    )
    if done.returncode:
        raise RuntimeError(
            f"{' '.join(command[-2:])} ended with {done.returncode}:\n{done.stderr[-2000:]}"
        )
    return done.stdout.splitlines()


def main() -> None:
    """Write the file."""
    told = [json.loads(line) for line in run("write")]
    cases = {one.pop("case"): one for one in told if "records" in one}
    vectors = [one for one in told if "magic" in one]
    text = ",\n".join(f"  {json.dumps(name)}: {json.dumps(case)}" for name, case in cases.items())
    lines = ",\n".join(f"  {json.dumps(vector)}" for vector in vectors)
    VECTORS.write_text(
        f'{{"kafka": "{KAFKA}", "cases": {{\n{text}\n}}, "vectors": [\n{lines}\n]}}\n',
        encoding="utf-8",
    )
    sys.stdout.write(f"{len(vectors)} vectors of {len(cases)} cases in {VECTORS.name}\n")


if __name__ == "__main__":
    main()
