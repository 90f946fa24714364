"""The compiled build is ordinary Cython on CPython's documented C API: one source for all Pythons, none of their private parts."""

from __future__ import annotations

import pathlib
import re

import pytest

PACKAGE = pathlib.Path(__file__).parents[2] / "aioproducer"
SOURCES = sorted(
    path for path in PACKAGE.rglob("*") if path.suffix in {".pyx", ".pxd", ".pxi", ".h"}
)
# Private names, slots that are set by hand, and code for one version of CPython.
FORBIDDEN = re.compile(
    r"tp_[a-z_]+ *=|am_send|vectorcall|func_code|ml_doc|\b_Py_|PyObject_GC_(?:New|Del|Track)|PyThreadState|prefetch|__class__ *="
    r"|\bPy_(?:tp|am|nb|sq|mp|bf)_\w+|PyType_(?:Slot|Spec|From\w+)"
    r"|\b(?:PY_VERSION_HEX|PY_MAJOR_VERSION|PY_MINOR_VERSION|Py_Version|version_info|hexversion)\b"
)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_a_source_keeps_to_what_is_documented(path: pathlib.Path) -> None:
    """But for the one branch by version: the hash that a tuple of Python 3.14 keeps, which `PyType_GenericAlloc` leaves at 0."""
    lines = [
        line.strip()
        for line in path.read_text(encoding="utf-8").splitlines()
        if FORBIDDEN.search(line)
    ]
    assert lines == (["#if PY_VERSION_HEX >= 0x030E0000"] if path.name == "_delivery.pyx" else [])
