"""Checks what basedpyright makes of the package for its users: `python -m tests.tools.typed_face`.

The share of symbols with a known type (`--verifytypes`), and what an editor offers where an option of `Producer` is typed.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import threading
from typing import Any, Final

__all__ = ["completions", "known"]

ROOT = pathlib.Path(__file__).parents[2]
PROGRAMS = pathlib.Path(sys.executable).parent
LEAST: Final = 0.99
_TYPED: Final = "from aioproducer import Producer\n\nproducer = Producer(linger"
_SECONDS: Final = 120


def known() -> tuple[float, list[str]]:
    """Return the share of the package's symbols that have a known type, and the names of the others."""
    command = [
        PROGRAMS / "basedpyright",
        "--verifytypes",
        "aioproducer",
        "--ignoreexternal",
        "--outputjson",
        "--pythonpath",
        sys.executable,
    ]
    # an editable install is a finder, which only Python follows
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    # its status is 1 if one symbol has no known type
    told = subprocess.run(command, capture_output=True, env=env, cwd=ROOT, check=False, timeout=_SECONDS).stdout
    report = json.loads(told)["typeCompleteness"]
    return report["completenessScore"], [one["name"] for one in report["symbols"] if one["isExported"] and not one["isTypeKnown"]]


class Server:
    """Speaks the language server protocol with basedpyright on its standard streams."""

    def __init__(self, folder: pathlib.Path) -> None:
        command = [PROGRAMS / "basedpyright-langserver", "--stdio"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=folder)
        # a server that is killed ends its output, and so the wait for it
        self._deadline = threading.Timer(_SECONDS, self._process.kill)
        self._deadline.start()
        self._numbers = 0

    def close(self) -> None:
        """End the server."""
        self._deadline.cancel()
        self._process.kill()
        self._process.wait()

    def request(self, method: str, **params: Any) -> Any:
        """Return the result of a request; the server's own requests are answered with nothing meanwhile."""
        self._numbers += 1
        number = self._numbers
        self._write(id=number, method=method, params=params)
        while True:
            message = self._read()
            if "method" in message and "id" in message:
                asked = len(message.get("params", {}).get("items", ())) if message["method"] == "workspace/configuration" else 0
                self._write(id=message["id"], result=[None] * asked if asked else None)
            elif message.get("id") == number:
                return message["result"]

    def notify(self, method: str, **params: Any) -> None:
        """Send a notification."""
        self._write(method=method, params=params)

    def _write(self, **message: Any) -> None:
        assert self._process.stdin is not None
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self._process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self._process.stdin.flush()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        length = 0
        while (line := self._process.stdout.readline()) != b"\r\n":
            if not line:
                raise EOFError("the language server has ended")
            if line.lower().startswith(b"content-length:"):
                length = int(line.partition(b":")[2])
        message = json.loads(self._process.stdout.read(length))
        assert isinstance(message, dict)
        return message


def completions(text: str = _TYPED) -> list[str]:
    """Return what an editor offers at the end of `text`."""
    uri = (ROOT / "typed.py").as_uri()
    lines = text.split("\n")
    server = Server(ROOT)
    try:
        folders = [{"uri": ROOT.as_uri(), "name": "typed"}]
        server.request("initialize", processId=os.getpid(), rootUri=ROOT.as_uri(), workspaceFolders=folders, capabilities={})
        server.notify("initialized")
        server.notify("textDocument/didOpen", textDocument={"uri": uri, "languageId": "python", "version": 1, "text": text})
        place = {"line": len(lines) - 1, "character": len(lines[-1])}
        result = server.request("textDocument/completion", textDocument={"uri": uri}, position=place)
    finally:
        server.close()
    return [item["label"] for item in (result["items"] if isinstance(result, dict) else result)]


def main() -> int:
    """Print both. Returns 1 if one is not as it must be."""
    share, others = known()
    print(f"{share:.2%} of the symbols have a known type; not {', '.join(others)}")
    offered = completions()
    print(f"offered for `{_TYPED.splitlines()[-1]}`: {', '.join(offered[:5])}")
    return int(share < LEAST or "linger_ms" not in {one.rstrip("=") for one in offered[:5]})


if __name__ == "__main__":
    sys.exit(main())
