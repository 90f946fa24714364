"""Marks tests that need a real KDC, and skips them with the reason where it is missing. `nox -s kerberos` has it, and skips none."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from tests.support.kdc import Kdc

__all__ = ["NEEDS_KDC", "NEEDS_KERBEROS"]

_PROGRAMS = f"{', '.join(Kdc.missing())} not found: apt-get install krb5-kdc krb5-admin-server krb5-user" if Kdc.missing() else ""
_PACKAGE = (
    "" if find_spec("gssapi") else "gssapi is not installed: apt-get install gcc libkrb5-dev, then pip install 'aioproducer[kerberos]'"
)

# `integration`, too: what runs tests without Java runs none with other programs either
NEEDS_KDC = [pytest.mark.kerberos, pytest.mark.integration, pytest.mark.skipif(bool(_PROGRAMS), reason=_PROGRAMS)]
NEEDS_KERBEROS = [*NEEDS_KDC, pytest.mark.skipif(bool(_PACKAGE), reason=_PACKAGE)]
