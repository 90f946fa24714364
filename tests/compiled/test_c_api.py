"""Tests that the compiled build uses documented C names of CPython alone: those of `c_api.txt`, each with its page."""

from __future__ import annotations

import pathlib
import re
import runpy
from typing import Any, Final

import pytest

HERE: Final = pathlib.Path(__file__).parent
C_NAMES: Final[dict[str, Any]] = runpy.run_path(str(HERE / "c_names.py"))
SOURCES: Final[list[pathlib.Path]] = C_NAMES["sources"]()
LISTED: Final[dict[str, str]] = C_NAMES["listed"]((HERE / "c_api.txt").read_text(encoding="utf-8"))

PAGE: Final = re.compile(
    r"https://docs\.python\.org/3/c-api/\w+\.html#[\w.-]+|https://cython\.readthedocs\.io/en/latest/src/\w+/\w+\.html(?:#[\w-]+)?"
    # A processor's instruction for CRC-32C, where the compiler has it.
    r"|https://gcc\.gnu\.org/onlinedocs/gcc/[\w-]+\.html|https://arm-software\.github\.io/acle/main/acle\.html"
    # Linux's clocks, where the system has them.
    r"|https://man7\.org/linux/man-pages/man2/clock_gettime\.2\.html"
)
FORBIDDEN: Final = re.compile(
    r"tp_[a-z_]+ *=|am_send|vectorcall|func_code|ml_doc|_Py_|PyObject_GC_(New|Del|Track)|PyThreadState|prefetch|__class__ *="
)
SLOT: Final = re.compile(r"Py_(?:tp|am|nb|sq|mp|bf)_\w+|PyType_(?:Slot|Spec|From\w+)")
VERSION: Final = re.compile(r"\b(?:PY_VERSION_HEX|PY_MAJOR_VERSION|PY_MINOR_VERSION|Py_Version|version_info|hexversion)\b")

EXAMPLE: Final = '''
"""PyObject_InADocstring is none."""
cimport cython
from cpython cimport array
from cpython.bytes cimport (
    PyBytes_AS_STRING,
    PyBytes_FromStringAndSize as new_bytes,
)
from libc.stdint cimport int64_t
cimport cpython.list as lists
from libc cimport string
from aioproducer.engine.delivery._produce_request_result cimport Result
cdef extern from *:
    """
    #include <structmember.h>
    #define OWN_MACRO(object) PyObject_GC_UnTrack(object)
    static destructor own_pointer;
    static Py_hash_t own_function(PyObject *self, uint32_t count) {
        /* Py_INCREF(in a comment) */
        own_pointer = Py_TYPE(self)->tp_dealloc;
        ((PyTupleObject *)self)->ob_hash = ((PyLongObject *) (self))->ob_digit;
        return memcmp(self, "Py_DECREF", count) ? own_function(self, 1) : sizeof(self);
    }
    """
    Py_hash_t own_function(object given)  # PyUnicode_InAComment
    const int OWN_MACRO
cdef extern from "Python.h":
    ctypedef struct PyMemberDef:
        pass
    char *at "PyUnicode_AsUTF8" (object text) except NULL
    const Py_ssize_t PY_SSIZE_T_MAX

@cython.no_gc
cdef class Example:
    cdef array.array held
    def modules(self):
        string.memmove(NULL, NULL, lists.PyList_GET_SIZE(self.held))
    def text(self):
        return "PyList_InAText", array.clone(self.held, 1, zero=False)  # PyDict_InAComment
    def slot(self, PyTypeObject *kind):
        return kind.tp_basicsize + (<PyTypeObject *> kind).tp_itemsize
'''
USED: Final = frozenset(
    [
        "PyBytes_AS_STRING",
        "PyBytes_FromStringAndSize",
        "int64_t",
        "structmember.h",
        "PyObject_GC_UnTrack",
        "PyObject",
        "Py_hash_t",
        "uint32_t",
        "Py_TYPE",
        "?.tp_dealloc",
        "PyTupleObject",
        "PyTupleObject.ob_hash",
        "PyLongObject",
        "PyLongObject.ob_digit",
        "PyList_GET_SIZE",
        "memmove",
        "memcmp",
        "Python.h",
        "PyMemberDef",
        "PyUnicode_AsUTF8",
        "Py_ssize_t",
        "PY_SSIZE_T_MAX",
        "cython.no_gc",
        "array.array",
        "array.clone",
        "PyTypeObject",
        "?.tp_basicsize",
        "PyTypeObject.tp_itemsize",
    ]
)


def test_each_name_is_found_and_none_of_our_own(tmp_path: pathlib.Path) -> None:
    """In cimports, declarations, code and C; not in comments, texts and docstrings."""
    (tmp_path / "example.pyx").write_text(EXAMPLE, encoding="utf-8")
    assert C_NAMES["names_of"]([tmp_path / "example.pyx"]) == USED


def test_a_header_is_read_as_c(tmp_path: pathlib.Path) -> None:
    """What it defines is ours in the other sources, too."""
    (tmp_path / "own.h").write_text(
        "#define own(x) Py_NewRef(x)\nstatic size_t own_size(void) { return strlen(own_text); }\n", encoding="utf-8"
    )
    (tmp_path / "example.pxd").write_text('cdef extern from "own.h":\n    size_t own_size()\n    object own(object x)\n', encoding="utf-8")
    paths = [tmp_path / name for name in ("example.pxd", "own.h")]
    assert C_NAMES["names_of"](paths) == {"Py_NewRef", "size_t", "strlen", "own.h"}


def test_the_sources_use_what_is_listed() -> None:
    """No name more, and none less. `python tests/compiled/c_names.py --write` brings the list up to date."""
    used = C_NAMES["names_of"](SOURCES)
    assert sorted(used - LISTED.keys()) == [], "are not listed"
    assert sorted(LISTED.keys() - used) == [], "are not used"


def test_each_name_has_its_page() -> None:
    """At docs.python.org, Cython's, or the compiler's."""
    assert {name: page for name, page in LISTED.items() if not PAGE.fullmatch(page)} == {}
    wrong = {name: page for name, page in LISTED.items() if "#c." in page and not page.endswith(f"#c.{name.partition('.')[0]}")}
    assert wrong.keys() <= {"PY_SSIZE_T_MAX"}, "an anchor is another name's"


def test_nothing_private_no_slot_no_field() -> None:
    """But the hash that a tuple of Python 3.14 keeps, which `PyType_GenericAlloc` leaves at 0."""
    assert [name for name in LISTED if name.startswith("_Py")] == []
    assert [name for name in LISTED if SLOT.fullmatch(name)] == []
    fields = {name for name in LISTED if "." in name and not name.startswith(("cython.", "array.")) and not name.endswith(".h")}
    assert fields <= {"PyTupleObject.ob_hash"}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_no_trick(path: pathlib.Path) -> None:
    """Also none that is only talked about."""
    lines = path.read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if FORBIDDEN.search(line)] == []


def test_one_branch_by_version_at_most() -> None:
    """That for `ob_hash`."""
    texts = [path.read_text(encoding="utf-8") for path in SOURCES]
    branches = [text[found.start() : found.start() + 200] for text in texts for found in VERSION.finditer(text)]
    assert len(branches) <= 1
    assert all("ob_hash" in branch for branch in branches)
