"""Tests of the first producer of a process that cannot import anyio's backend."""

from __future__ import annotations

import pytest

from aioproducer.engine.tasks import anyio_backend


def lacking(name: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let the import of the backend fail, as where this module is not installed. Returns the imports that are tried."""
    tried: list[str] = []

    def fail(backend: str) -> None:
        tried.append(backend)
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(anyio_backend, "import_module", fail)
    return tried


def test_a_package_that_anyio_needs_is_missed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A constructor raises it. `start` took it for a broker that cannot be reached, and tried for max_block_ms."""
    lacking("typing_extensions", monkeypatch)
    with pytest.raises(ModuleNotFoundError, match="typing_extensions"):
        anyio_backend.load_backend()


def test_an_anyio_with_another_backend_module_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """The backend's module is private: a version of anyio may have moved it."""
    tried = lacking("anyio._backends._asyncio", monkeypatch)
    anyio_backend.load_backend()
    assert tried == ["anyio._backends._asyncio"]
