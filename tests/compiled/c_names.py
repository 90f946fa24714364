"""Finds the C names that the sources of the compiled build use, and writes the list of them: tests/compiled/c_api.txt.

    python tests/compiled/c_names.py [--write]

Without `--write` it prints what the list lacks and what it has too much. A C name is a cimported name, an attribute of a cimported module,
a declaration of a `cdef extern` block, any `Py...` or `PY_...` in the code, and in C (the text of an extern block, a header) also each type
`..._t`, each function that is called and each header. Names that a source defines itself are left out.
"""

from __future__ import annotations

import argparse
import pathlib
import re
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

ROOT: Final = pathlib.Path(__file__).parents[2]
LIST: Final = pathlib.Path(__file__).with_name("c_api.txt")
SUFFIXES: Final = (".pyx", ".pxd", ".pxi", ".h")

PYTHON: Final = "https://docs.python.org/3/c-api/"
CYTHON: Final = "https://cython.readthedocs.io/en/latest/src/"
PAGES: Final[Mapping[str, str]] = {
    "PyObject_GC_": f"{PYTHON}gcsupport.html#c.",
    "PyObject_IS_GC": f"{PYTHON}gcsupport.html#c.",
    "PyObject_GetBuffer": f"{PYTHON}buffer.html#c.",
    "PyObject_ClearWeakRefs": f"{PYTHON}weakref.html#c.",
    "PyObject_Malloc": f"{PYTHON}memory.html#c.",
    "PyObject_Free": f"{PYTHON}memory.html#c.",
    "PyObject_Init": f"{PYTHON}allocation.html#c.",
    "PyObject_New": f"{PYTHON}allocation.html#c.",
    "PyObject_Call": f"{PYTHON}call.html#c.",
    "PyObject_": f"{PYTHON}object.html#c.",
    "PyObject": f"{PYTHON}structures.html#c.",
    "PyBUF_": f"{PYTHON}buffer.html#c.",
    "PyBuffer_": f"{PYTHON}buffer.html#c.",
    "Py_buffer": f"{PYTHON}buffer.html#c.",
    "PyBytes_": f"{PYTHON}bytes.html#c.",
    "PyByteArray_": f"{PYTHON}bytearray.html#c.",
    "PyContext": f"{PYTHON}contextvars.html#c.",
    "PyBool_": f"{PYTHON}bool.html#c.",
    "PyCallable_": f"{PYTHON}call.html#c.",
    "PyCFunction": f"{PYTHON}structures.html#c.",
    "PyDict_": f"{PYTHON}dict.html#c.",
    "PyErr_": f"{PYTHON}exceptions.html#c.",
    "PyExc_": f"{PYTHON}exceptions.html#c.",
    "PyFloat_": f"{PYTHON}float.html#c.",
    "PyImport_": f"{PYTHON}import.html#c.",
    "PyIndex_": f"{PYTHON}number.html#c.",
    "PyIter_": f"{PYTHON}iter.html#c.",
    "PyList_": f"{PYTHON}list.html#c.",
    "PyLong_": f"{PYTHON}long.html#c.",
    "PyMem_": f"{PYTHON}memory.html#c.",
    "PyNumber_": f"{PYTHON}number.html#c.",
    "PySendResult": f"{PYTHON}iter.html#c.",
    "PySequence_": f"{PYTHON}sequence.html#c.",
    "PyTuple": f"{PYTHON}tuple.html#c.",
    "PyType_Check": f"{PYTHON}type.html#c.",
    "PyTypeObject": f"{PYTHON}type.html#c.",
    "PyType_": f"{PYTHON}type.html#c.",
    "PyUnicode_": f"{PYTHON}unicode.html#c.",
    "PyWeakref_": f"{PYTHON}weakref.html#c.",
    "PY_VERSION_HEX": f"{PYTHON}apiabiversion.html#c.",
    "PY_SSIZE_T_MAX": f"{PYTHON}intro.html#c.Py_ssize_t",
    "Py_ssize_t": f"{PYTHON}intro.html#c.",
    "Py_hash_t": f"{PYTHON}hash.html#c.",
    "Py_INCREF": f"{PYTHON}refcounting.html#c.",
    "Py_XINCREF": f"{PYTHON}refcounting.html#c.",
    "Py_DECREF": f"{PYTHON}refcounting.html#c.",
    "Py_XDECREF": f"{PYTHON}refcounting.html#c.",
    "Py_CLEAR": f"{PYTHON}refcounting.html#c.",
    "Py_NewRef": f"{PYTHON}refcounting.html#c.",
    "Py_XNewRef": f"{PYTHON}refcounting.html#c.",
    "Py_REFCNT": f"{PYTHON}refcounting.html#c.",
    "Py_TYPE": f"{PYTHON}structures.html#c.",
    "Py_IS_TYPE": f"{PYTHON}structures.html#c.",
    "Py_SIZE": f"{PYTHON}structures.html#c.",
    "Py_None": f"{PYTHON}none.html#c.",
    "Py_True": f"{PYTHON}bool.html#c.",
    "Py_False": f"{PYTHON}bool.html#c.",
    "Py_UNUSED": f"{PYTHON}intro.html#c.",
    "Python.h": f"{PYTHON}intro.html#include-files",
    "array.": f"{CYTHON}tutorial/array.html",
    "cython.no_gc": f"{CYTHON}userguide/extension_types.html",
    "cython.freelist": f"{CYTHON}userguide/extension_types.html",
    "cython.final": f"{CYTHON}userguide/extension_types.html",
    "cython.": f"{CYTHON}userguide/source_files_and_compilation.html#compiler-directives",
}
"""Where names are documented: the page of the longest beginning that fits; one that ends with `#c.` is followed by the name."""
LIBC: Final = f"{CYTHON}tutorial/external.html"
"""The page of what `libc` gives."""
_LIBC: Final = re.compile(
    r"u?(?:int(?:\d+|ptr|max)|s?size|ptrdiff)_t|U?INT\d+_(?:MAX|MIN)|mem\w+|[mc]alloc|realloc|free|str\w+|std\w+\.h|string\.h"
)

_EXTERN: Final = re.compile(r"^([ \t]*)cdef extern from [^\n]*:[ \t]*(?:#[^\n]*)?\n", re.MULTILINE)
_VERBATIM: Final = re.compile(r'\s*(?:#[^\n]*\s*)*(?P<quote>"""|\'\'\')(?P<text>.*?)(?P=quote)', re.DOTALL)
_TEXT: Final = re.compile(
    r'[rRbBuUfF]*(?P<quote>"""|\'\'\')(?:\\.|.)*?(?P=quote)|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|#[^\n]*', re.DOTALL
)
_C_TEXT: Final = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', re.DOTALL)
_API: Final = re.compile(r"\b(?:_?Py[A-Z_]\w*|PY_[A-Z]\w*|METH_\w+)")
_CIMPORT: Final = re.compile(r"^[ \t]*from[ \t]+(\S+)[ \t]+cimport[ \t]+(\([^)]*\)|[^\n]+)", re.MULTILINE)
_MODULE: Final = re.compile(r"^[ \t]*cimport[ \t]+([^\n]+)", re.MULTILINE)
_PREFIXES: Final = "ob|tp|nb|sq|mp|bf|am|ml|md|func|cr|gi|gc"
_CAST: Final = r"\(\s*[(<]\s*(?:struct\s+)?(?P<type>\w+)\s*\*\s*[)>]\s*(?:\([^()]*\)|[^()]*)\)\s*"
_FIELD: Final = re.compile(rf"(?:{_CAST})?(?:->|\.)\s*(?P<field>(?:{_PREFIXES})_\w+)")
_WORDS: Final = frozenset(
    [
        "if",
        "while",
        "for",
        "switch",
        "return",
        "sizeof",
        "defined",
        "do",
        "else",
        "case",
        "void",
        "int",
        "char",
        "long",
        "short",
        "unsigned",
        "signed",
        "float",
        "double",
        "bint",
        "object",
    ]
)
_PARTS: Final = {"cpython", "libc", "posix", "cython"}  # packages whose members are modules
_NAMED_WITH_MODULE: Final = {"array", "cython"}  # what these give has its name with that of the module


def sources(root: pathlib.Path = ROOT) -> list[pathlib.Path]:
    """Return what the compiled build is made of, but for modules that are Python as well."""
    return sorted(path for path in (root / "aioproducer").rglob("*") if path.suffix in SUFFIXES)


def names_of(paths: Iterable[pathlib.Path]) -> set[str]:
    """Return the C names that these files use together; what one defines is no C name in the others."""
    found, own = set[str](), set[str]()
    for path in paths:
        text = path.read_text(encoding="utf-8")
        used, defined = _c_names(text) if path.suffix == ".h" else _cython_names(text)
        found |= used
        own |= defined
    return found - own


def _cython_names(text: str) -> tuple[set[str], set[str]]:
    """Return what a Cython source uses, and what it defines in C."""
    externs, code, verbatim = _parts(text)
    found, own = set(_API.findall(externs)) | set(_API.findall(code)), set[str]()
    for block in verbatim:
        used, defined = _c_names(block)
        found |= used
        own |= defined
    found.update(_declared(externs))
    found.update(_cimported(code))
    found.update(_fields(code))
    return found, own


def _parts(text: str) -> tuple[str, str, list[str]]:
    """Return the declarations of extern blocks, all other code, and the C of extern blocks, without comments and texts."""
    externs, rest, verbatim, at = [], [], [], 0
    for begin in _EXTERN.finditer(text):
        if begin.start() < at:
            continue
        rest.append(text[at : begin.start()])
        at = begin.end()
        externs.append(begin[0].replace("cdef extern from", "").strip().rstrip(":").strip('*"') + "\n")
        if found := _VERBATIM.match(text, at):
            verbatim.append(found["text"])
            at = found.end()
        indent = len(begin[1])
        for line in text[at:].splitlines(keepends=True):
            if line.strip() and len(line) - len(line.lstrip()) <= indent:
                break
            externs.append(re.sub(r"#.*", "", line))
            at += len(line)
    rest.append(text[at:])
    return "".join(externs), _TEXT.sub("", "".join(rest)), verbatim


def _declared(externs: str) -> Iterator[str]:
    """Yield the names in C of what extern blocks declare; a name in quotes is that in C."""
    for line in externs.splitlines():
        declaration = re.sub(r"^\s*(?:cdef|ctypedef|enum|struct|union)\b", "", line).strip().rstrip(":")
        if declaration == "pass":
            continue
        if named := re.search(r'"(\w+)"', declaration):
            yield named[1]
        elif re.fullmatch(r"[\w/]+\.h", declaration):
            yield declaration
        elif called := re.search(r"(\w+)\s*\(", declaration):
            yield called[1]
        elif words := re.findall(r"\w+", re.sub(r"\b(?:noexcept|nogil|except\b.*)", "", declaration)):
            yield words[-1]


def _cimported(code: str) -> Iterator[str]:
    """Yield cimported names, and what is used of cimported modules; what the package itself has is none of C's."""
    modules = dict[str, str]()
    for package, given in _CIMPORT.findall(code):
        if package.startswith((".", "aioproducer")):
            continue
        for name, alias in re.findall(r"(\w+|\*)(?:\s+as\s+(\w+))?\s*(?:,|$)", given.strip("() \t\n\r")):
            if package in _PARTS:
                modules[alias or name] = name
            else:
                yield name
    for given in _MODULE.findall(code):
        for part in given.split(","):
            name, _, alias = part.strip().partition(" as ")
            if not name.startswith("aioproducer"):
                modules[alias.strip() or name] = name.rpartition(".")[2]
    for alias, module in modules.items():
        for name in re.findall(rf"(?<![\w.]){re.escape(alias)}\.(\w+)", _MODULE.sub("", _CIMPORT.sub("", code))):
            yield f"{module}.{name}" if module in _NAMED_WITH_MODULE else name


def _fields(code: str) -> Iterator[str]:
    """Yield fields of structs of CPython that are reached into, as "struct.field"; the struct is "?" where a cast does not say it."""
    for found in _FIELD.finditer(code):
        yield f"{found['type'] or '?'}.{found['field']}"


def _c_names(text: str) -> tuple[set[str], set[str]]:
    """Return what C uses, and what it defines."""
    headers = set(re.findall(r"#\s*include\s*[<\"]([\w/.]+)[>\"]", text))
    code = _C_TEXT.sub("", text)
    own = set(re.findall(r"\b(\w+)\s*\([^;{}()]*(?:\([^()]*\)[^;{}()]*)*\)\s*\{", code)) - _WORDS
    own.update(re.findall(r"\(\s*\*\s*(\w+)\s*\)\s*\(", code), re.findall(r"\btypedef\b[^;]*?\b(\w+)\s*;", code))
    for name, given in re.findall(r"#\s*define\s+(\w+)(?:\(([^)]*)\))?", code):
        own.update({name, *re.findall(r"\w+", given)})
    own.update(re.findall(r"\bstatic\b[^;=(){}]*?\b(\w+)\s*[;=\[]", code))
    called = set(re.findall(r"(?<![\w.>])([a-z_]\w*)\s*\(", code)) - _WORDS
    types = set(re.findall(r"\b[a-z]\w*_t\b", code))
    return headers | called | types | set(_API.findall(code)) | set(_fields(code)), own


def page_of(name: str) -> str:
    """Return where a name is documented, by its beginning; empty if that is not known, and a page has to be found."""
    fits = [beginning for beginning in PAGES if name.startswith(beginning)]
    if not fits:
        return LIBC if _LIBC.fullmatch(name) else ""
    page = PAGES[max(fits, key=len)]
    return page + name.partition(".")[0] if page.endswith("#c.") else page


def listed(text: str) -> dict[str, str]:
    """Return the pages of the list by name."""
    lines = (line.split() for line in text.splitlines() if not line.startswith("#"))
    return {line[0]: line[-1] for line in lines if line}


def main() -> int:
    parser = argparse.ArgumentParser(description="The C names of the compiled build's sources.")
    parser.add_argument("--write", action="store_true", help=f"write {LIST.name}; pages that it has are kept")
    chosen = parser.parse_args()
    text = LIST.read_text(encoding="utf-8") if LIST.exists() else ""
    used, known = names_of(sources()), listed(text)
    for name in sorted(used - known.keys()):
        print(f"lacks {name} {page_of(name) or 'NO PAGE IS KNOWN'}")
    for name in sorted(known.keys() - used):
        print(f"has too much {name}")
    if chosen.write:
        heading = "".join(line for line in text.splitlines(keepends=True) if line.startswith("#"))
        pages = {name: known.get(name) or page_of(name) for name in sorted(used)}
        lines = [f"{name} {page}\n" for name, page in pages.items() if page]
        LIST.write_text(heading + "".join(lines), encoding="utf-8")
    return 0 if used == known.keys() else 1


if __name__ == "__main__":
    sys.exit(main())
