"""Tests of `aioproducer.sasl.secret_bytes`."""

from __future__ import annotations

import copy
import pickle

import pytest

from aioproducer.sasl.secret_bytes import SecretBytes


def test_nothing_shows_the_bytes() -> None:
    secret = SecretBytes(b"canary-key")
    assert secret.reveal() == b"canary-key"
    for shown in (repr(secret), str(secret), f"{secret}", repr([secret]), repr({"key": secret})):
        assert "canary" not in shown
    for leave in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="not pickled"):
            leave(secret)


def test_equal_bytes_are_equal() -> None:
    assert SecretBytes(b"canary") == SecretBytes(b"canary")
    assert hash(SecretBytes(b"canary")) == hash(SecretBytes(b"other"))
    assert SecretBytes(b"canary") != SecretBytes(b"canary-")
    assert SecretBytes(b"canary") != b"canary"
