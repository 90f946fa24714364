"""Kinds of values that the options of security share: texts, paths and secrets."""

from __future__ import annotations

import os
from typing import Any, Final

from aioproducer.errors import ConfigError
from aioproducer.option_kinds import Kind
from aioproducer.secret import NotText, Secret, is_reference

__all__ = ["PATH", "SECRET", "TEXT", "TOKEN", "is_secret", "plain_text", "read_secret", "read_text", "type_name"]


def plain_text(name: str, value: Any) -> str:
    """Return a text that is no reference."""
    if isinstance(value, Secret):
        raise ConfigError(f"{name} has a private key, which is a secret: give it as ssl_keystore_key, or in a file")
    if not isinstance(value, str):
        raise ConfigError(f"{name} must be a string, not {type_name(value)}")
    if not value.strip():
        raise ConfigError(f"{name} is empty: leave it out")
    if is_reference(value):
        raise ConfigError(f"{name}={value.strip()}: references are read in secret options and sasl_username alone. Give the value itself")
    return value


def read_text(name: str, value: Any) -> str | None:
    """Return a text that is no reference, or None."""
    return None if value is None else plain_text(name, value)


def _path(name: str, value: Any) -> str | None:
    return read_text(name, os.fspath(value) if isinstance(value, os.PathLike) else value)


def read_secret(name: str, value: Any) -> Secret | None:
    """Return the secret. The caller has hidden its text already."""
    if value is None:
        return None
    if not isinstance(value, Secret):
        raise ConfigError(f"{name} must be a string, not {type_name(value)}")
    if not value.is_encodable:
        raise ConfigError(f"{name} has characters that UTF-8 does not")
    if value.is_mixed:
        raise ConfigError(f"{name} has a reference within other text: a reference is the whole value")
    return value


def _token(name: str, value: Any) -> Secret | NotText | None:
    """Return the source of tokens: a secret, or a function or an object, hidden as it may have a secret. The caller has hidden it already."""
    if not isinstance(value, NotText):
        return read_secret(name, value)
    given = value.reveal()
    if not callable(getattr(given, "token", given)) or isinstance(given, type):
        raise ConfigError(f"{name} must be a string, a function, or an object with token(), not {value.type_name}")
    return value


def type_name(value: object) -> str:
    """Return the name of the type of a value, also of a hidden one."""
    return value.type_name if isinstance(value, NotText) else type(value).__name__


def is_secret(kind: Kind) -> bool:
    """Return whether values of a kind are hidden."""
    return kind.read in {read_secret, _token}


TEXT: Final = Kind("a text, or None", read_text)
PATH: Final = Kind("a path, or None", _path)
SECRET: Final = Kind("a secret or a reference to one, or None", read_secret)
TOKEN: Final = Kind("a token or a reference to one, a function, an object with token(), or None", _token)
