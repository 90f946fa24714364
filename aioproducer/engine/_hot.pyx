# cython: language_level=3, boundscheck=True, wraparound=False, binding=False
# cython: embedsignature=False, auto_pickle=False, freethreading_compatible=False
"""The way of a record, compiled: the twin of `engine.plain`, which says what each part means; here stands what is done otherwise.

1. A record is encoded in place, into the bytes object that becomes its batch's payload: one copy, and no object of its own. The object is
   never used twice, so nothing can overwrite what a transport still holds.
2. A `Delivery` is not seen by the cyclic collector. It is in a cycle only while a callback of its own batch waits, and each batch ends.
3. `send` gives a `Sending`, which takes its first step without a frame, and is a coroutine to whoever asks: where one is really needed,
   to be looked into, it makes the twin's. One that is over is the next, once nobody else has it.
4. A `RecordMetadata` that is let go is made anew of the same memory, and the collector does not know of it.

Whatever comes from users is looked at before a byte of it is copied. Knows nothing of batches' states, memory or the network.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from cpython.dict cimport PyDict_GetItemWithError
from cpython.list cimport PyList_CheckExact, PyList_GET_ITEM
from cpython.long cimport PyLong_CheckExact
from cpython.sequence cimport PySequence_Fast_ITEMS
from cpython.tuple cimport PyTuple_CheckExact, PyTuple_GET_ITEM, PyTuple_GET_SIZE
from cpython.unicode cimport PyUnicode_CheckExact
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memcpy

from array import array
from asyncio import CancelledError, InvalidStateError, get_running_loop
from collections.abc import Coroutine
from types import CoroutineType, SimpleNamespace
import asyncio.coroutines
import inspect
import sys

from aioproducer.core.routes import Cell, Route
from aioproducer.engine import plain
from aioproducer.engine.plain import here
from aioproducer.engine.result import BatchResult, Home, Outcome
from aioproducer.model import RecordMetadata
from aioproducer.records.record_batch import MOMENT, NULL as _NULL, TABLE, VARINT, varint

__all__ = [
    "FULL", "RECORD_OVERHEAD", "TURN", "TURN_RECORDS", "Delivery", "OpenBatch", "SendPath", "Sending", "Way", "make_delivery",
    "measured", "uncollected", "wake",
]

TURN = 131_072
TURN_RECORDS = plain.TURN_RECORDS
RECORD_OVERHEAD = 0

cdef extern from *:
    """
    #ifndef SOURCE_CRC
    #define SOURCE_CRC 0U
    #endif
    #define hot_give_code(function, code) \\
        do { PyObject *was_ = (PyObject *)((__pyx_CyFunctionObject *)(function))->func_code; Py_INCREF(code); \\
             ((__pyx_CyFunctionObject *)(function))->func_code = (void *)(code); Py_XDECREF(was_); } while (0)
    /* `send(topic, value)` and `send(topic, value, key)`, as most are called: Cython reads arguments that may be named or left out. */
    typedef PyObject *(*hot_sender)(PyObject *, PyObject *, PyObject *, PyObject *);
    static hot_sender hot_sends;
    static vectorcallfunc hot_called_rest;
    static PyTypeObject *hot_path;
    static PyObject *hot_called(PyObject *function, PyObject *const *args, size_t flags, PyObject *names) {
        Py_ssize_t count = PyVectorcall_NARGS(flags);
        if (names == NULL && (count == 3 || count == 4) && PyObject_TypeCheck(args[0], hot_path)) {
            return hot_sends(args[0], args[1], args[2], count == 4 ? args[3] : Py_None);
        }
        return hot_called_rest(function, args, flags, names);
    }
    static void hot_called_by(PyObject *function, PyObject *path, void *sends) {
        hot_called_rest = ((PyCFunctionObject *)function)->vectorcall;
        hot_path = (PyTypeObject *)path;
        hot_sends = (hot_sender)sends;
        ((PyCFunctionObject *)function)->vectorcall = hot_called;
    }
    static int hot_describe(PyObject *method, const char *text) {
        if (!Py_IS_TYPE(method, &PyMethodDescr_Type)) { PyErr_SetString(PyExc_SystemError, "no method of a type's"); return -1; }
        ((PyMethodDescrObject *)method)->d_method->ml_doc = text;
        return 0;
    }
    static int hot_steps_by(PyObject *type, sendfunc step) {
        PyAsyncMethods *methods = ((PyTypeObject *)type)->tp_as_async;
        if (methods == NULL) { PyErr_SetString(PyExc_SystemError, "the type has no __await__"); return -1; }
        methods->am_send = step;
        PyType_Modified((PyTypeObject *)type);
        return 0;
    }
    static PyObject *hot_alloc(PyTypeObject *type, Py_ssize_t Py_UNUSED(items)) {
        PyObject *made = (PyObject *)PyObject_Malloc(type->tp_basicsize);
        if (made == NULL) { return PyErr_NoMemory(); }
        memset(made + 1, 0, type->tp_basicsize - sizeof(PyObject));
        return PyObject_Init(made, type);
    }
    static void hot_alloc_plainly(PyObject *type) { ((PyTypeObject *)type)->tp_alloc = hot_alloc; }
    static void hot_iterates_by(PyObject *type, iternextfunc next) {
        ((PyTypeObject *)type)->tp_iternext = next;
        PyType_Modified((PyTypeObject *)type);
    }
    /* A __dealloc__ of Cython's saves and restores the error at hand each time, which costs more than all else that it would do here. */
    static destructor hot_dealloc_rest;
    static int (*hot_is_left)(PyObject *);
    static void (*hot_complain)(PyObject *);
    static void hot_dealloc(PyObject *object) {
        if (hot_is_left(object)) {
            PyObject *kind, *value, *trace;
            PyObject_GC_UnTrack(object);  /* what is allocated here may run the collector, and with it anybody's code */
            PyObject_ClearWeakRefs(object);
            PyErr_Fetch(&kind, &value, &trace);
            Py_SET_REFCNT(object, 1);
            hot_complain(object);
            Py_SET_REFCNT(object, 0);
            PyErr_Restore(kind, value, trace);
        }
        hot_dealloc_rest(object);
    }
    static void hot_ends_by(PyObject *type, void *is_left, void *complain) {
        if (((PyTypeObject *)type)->tp_dealloc != hot_dealloc) {  /* else an import of before did not come to its end */
            hot_dealloc_rest = ((PyTypeObject *)type)->tp_dealloc;
        }
        hot_is_left = (int (*)(PyObject *))is_left;
        hot_complain = (void (*)(PyObject *))complain;
        ((PyTypeObject *)type)->tp_dealloc = hot_dealloc;
    }
    #define hot_raise() (-1)  /* what is at hand */
    #define hot_untrack(object) do { if (PyObject_IS_GC(object)) { PyObject_GC_UnTrack(object); } } while (0)
    #if PY_VERSION_HEX < 0x030E0000
    #define hot_context() (PyThreadState_Get()->context)
    #else
    #define hot_context() NULL  /* as if none had been entered: each is copied */
    #endif
    #define hot_has_weakrefs(object) (*(PyObject **)((char *)(object) + Py_TYPE((PyObject *)(object))->tp_weaklistoffset) != NULL)
    #define hot_tracks_origins() (PyThreadState_Get()->coroutine_origin_tracking_depth)
    static int hot_replace(PyObject *type, PyObject *name, PyObject *method) {
        if (PyDict_SetItem(((PyTypeObject *)type)->tp_dict, name, method) < 0) { return -1; }
        PyType_Modified((PyTypeObject *)type);
        return 0;
    }
    #if defined(__GNUC__)
    #define hot_prefetch(place) __builtin_prefetch((const void *)(place), 1)
    #define hot_load(place) ((void)*(volatile const char *)(place))
    #else
    #define hot_prefetch(place) ((void)(place))
    #endif
    """
    const uint32_t SOURCE_CRC
    void hot_prefetch(const void *place) noexcept nogil
    void hot_load(const void *place) noexcept nogil
    int hot_replace(object type, object name, object method) except -1
    void hot_untrack(object held)
    PyObject *hot_context()
    bint hot_has_weakrefs(object held)
    bint hot_tracks_origins()
    void hot_give_code(object function, object code)
    void hot_called_by(object function, object path, void *sends)
    int hot_describe(object method, const char *text) except -1
    int hot_steps_by(object type, void *step) except -1
    void hot_alloc_plainly(object type)  # what the collector does not know, without the general allocator's questions
    void hot_iterates_by(object type, void *next)
    int hot_raise() except -1
    void hot_ends_by(object type, void *is_left, void *complain)

cdef extern from "Python.h":
    const Py_ssize_t PY_SSIZE_T_MAX
    char *bytes_at "PyBytes_AS_STRING"(PyObject *held)  # of a counted pointer, which an object's own would count
    bint is_bytes "PyBytes_CheckExact"(PyObject *held)
    Py_ssize_t size_of "PyBytes_GET_SIZE"(PyObject *held)
    ctypedef enum PySendResult:
        PYGEN_RETURN
        PYGEN_ERROR
        PYGEN_NEXT
    PySendResult PyIter_Send(object iterator, object arg, PyObject **result)
    int _PyBytes_Resize(PyObject **bytes_, Py_ssize_t size) except -1
    bint PyCoro_CheckExact(object)
    bint PyCFunction_CheckExact(object)
    PyObject *PyCFunction_GET_SELF(object)
    Py_ssize_t Py_REFCNT(PyObject *)
    void Py_XDECREF(PyObject *)
    void Py_INCREF(object)
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL
    unsigned long PyThread_get_thread_ident() nogil
    void *PyThreadState_Get()
    object PyContext_CopyCurrent()
    int PyContext_Enter(object context) except -1
    int PyContext_Exit(object context) except -1

SOURCE = SOURCE_CRC  # CRC-32 of this file, as setup.py read it

cdef object _DONE = Outcome.DONE
cdef object _PENDING = Outcome.PENDING
cdef object _SPLIT = Outcome.SPLIT
cdef object _CANCELLED = Outcome.CANCELLED
cdef object _plain_send = plain.SendPath.send
cdef object _plain_send_and_wait = plain.SendPath.send_and_wait
cdef object _running_loop = get_running_loop
cdef object _nothing = ()
cdef tuple _undressed = (None, None, _nothing)
cdef object _ZERO = 0
cdef bint _by_thread = sys.version_info < (3, 12)
cdef Py_ssize_t _TABLE = TABLE
cdef bytes _NO_HEADERS = b"\0"
cdef Py_ssize_t _TURN_RECORDS = TURN_RECORDS


# Bytes

cdef inline int width(int64_t value) noexcept nogil:
    """Of a zigzag varint."""
    cdef uint64_t rest = (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)
    cdef int size = 1
    while rest >= 0x80:
        rest >>= 7
        size += 1
    return size


cdef inline char *put(char *at, int64_t value) noexcept nogil:
    cdef uint64_t rest = (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)
    while rest >= 0x80:
        at[0] = <char>((rest & 0x7F) | 0x80)
        at += 1
        rest >>= 7
    at[0] = <char>rest
    return at + 1


cdef inline const char *take(const char *at, int64_t *value) noexcept nogil:
    """Of what `put` wrote."""
    cdef uint64_t rest = 0
    cdef int shift = 0
    while at[0] & 0x80:
        rest |= <uint64_t>(at[0] & 0x7F) << shift
        shift += 7
        at += 1
    rest |= <uint64_t>(at[0] & 0x7F) << shift
    value[0] = <int64_t>(rest >> 1) ^ -<int64_t>(rest & 1)
    return at + 1


cdef inline uint32_t hashed(const unsigned char *data, Py_ssize_t size) noexcept nogil:
    """Kafka's murmur2."""
    cdef uint32_t m = 0x5BD1E995U
    cdef uint32_t h = 0x9747B28CU ^ <uint32_t>size
    cdef uint32_t k
    cdef Py_ssize_t at = 0
    while size - at >= 4:
        k = <uint32_t>data[at] | <uint32_t>data[at + 1] << 8 | <uint32_t>data[at + 2] << 16 | <uint32_t>data[at + 3] << 24
        k *= m
        k ^= k >> 24
        k *= m
        h *= m
        h ^= k
        at += 4
    if size - at == 3:
        h ^= <uint32_t>data[at + 2] << 16
    if size - at >= 2:
        h ^= <uint32_t>data[at + 1] << 8
    if size - at >= 1:
        h ^= data[at]
        h *= m
    h ^= h >> 13
    h *= m
    return h ^ h >> 15


cdef enum:
    MOST_HEADERS = 32  # on the fast way
    MOST_OF_HEADERS = 4096  # bytes of them, before their sizes


cdef bytes encoded_headers(object headers):
    """As `record_batch.encode_headers`; None: some are of no plain kind, or they are many, and the slow way is to look at them."""
    cdef const char *texts[2 * MOST_HEADERS]  # of each header its key's and its value's; whose they are, no code runs that could change
    cdef Py_ssize_t sizes[2 * MOST_HEADERS]
    cdef Py_ssize_t count, at, whole
    cdef bint is_list = PyList_CheckExact(headers)
    cdef object header, key, value
    cdef char *place
    if not is_list and not PyTuple_CheckExact(headers):
        return None
    count = len(<list>headers) if is_list else len(<tuple>headers)
    if count > MOST_HEADERS:
        return None
    whole = width(count)
    for at in range(count):
        header = <object>(PyList_GET_ITEM(headers, at) if is_list else PyTuple_GET_ITEM(headers, at))
        if not PyTuple_CheckExact(header) or PyTuple_GET_SIZE(header) != 2:
            return None
        key, value = <object>PyTuple_GET_ITEM(header, 0), <object>PyTuple_GET_ITEM(header, 1)
        if not PyUnicode_CheckExact(key) or not (value is None or PyBytes_CheckExact(value)):
            return None
        try:
            texts[2 * at] = PyUnicode_AsUTF8AndSize(key, &sizes[2 * at])
        except UnicodeEncodeError:  # half of a surrogate pair
            return None
        texts[2 * at + 1] = NULL if value is None else PyBytes_AS_STRING(value)
        sizes[2 * at + 1] = -1 if value is None else PyBytes_GET_SIZE(value)
        if sizes[2 * at] > MOST_OF_HEADERS or sizes[2 * at + 1] > MOST_OF_HEADERS:
            return None
        whole += width(sizes[2 * at]) + sizes[2 * at] + width(sizes[2 * at + 1]) + max(sizes[2 * at + 1], 0)
        if whole > MOST_OF_HEADERS:
            return None
    encoded = PyBytes_FromStringAndSize(NULL, whole)
    place = put(PyBytes_AS_STRING(encoded), count)
    for at in range(2 * count):
        place = put(place, sizes[at])
        if sizes[at] > 0:
            memcpy(place, texts[at], sizes[at])
            place += sizes[at]
    return encoded


def murmur2(bytes key not None):
    """As `core.partitioner.murmur2`."""
    return hashed(<const unsigned char *>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key))


cdef inline bint is_flat(object column) noexcept:
    """Whether its items lie behind each other in memory, and nobody's own code gives them."""
    return PyList_CheckExact(column) or PyTuple_CheckExact(column)


def measured(column):
    """As the twin's."""
    cdef PyObject **items
    cdef Py_ssize_t at, size, used = 0, longest = 0
    if not is_flat(column):
        return None
    items = PySequence_Fast_ITEMS(column)
    for at in range(len(column)):
        if not is_bytes(items[at]):
            return None
        size = size_of(items[at])
        used += size
        if size > longest:
            longest = size
    return used, longest


# A batch

@cython.no_gc
@cython.final
cdef class OpenBatch:
    """Records, encoded one behind the other (an `interfaces.OpenBatch`). `granted` is the size of the buffer, `room` what is left of it.

    The collector does not walk over it: what it holds, its result, has others that lead there.
    """

    # what each record touches comes first, in as few cache lines as may be: with many topics each is cold
    cdef object stamp              # the time of the turn, by identity
    cdef char *place               # in the buffer, of the next record; to find it by the buffer is a wait for memory more
    cdef Py_ssize_t room
    cdef readonly object result
    cdef readonly Py_ssize_t count
    cdef int64_t delta, base, moment, latest
    cdef Py_ssize_t key_size, value_size
    cdef bint has_even_keys, has_even_values, has_even_moments
    cdef bint takes_keys           # as a shortcut it is one whatever the key: the topic has no other partition
    cdef PyObject *buffer          # bytes that nobody else has yet; NULL: none
    cdef readonly Py_ssize_t granted
    cdef Py_ssize_t shortcut       # its place among them; -1: none leads to it

    def __cinit__(self, result, timestamp_ms, Py_ssize_t room):
        self.result = result
        self.stamp = timestamp_ms
        self.base = timestamp_ms
        self.granted = self.room = room
        self.shortcut = -1
        self.has_even_keys = self.has_even_values = self.has_even_moments = True
        if room > 0:
            self.buffer = new_bytes(room)
            self.place = bytes_at(self.buffer)

    def __dealloc__(self):
        Py_XDECREF(self.buffer)

    cdef inline void call(self) noexcept:
        """For what the next record writes to, at once: with thousands of partitions none of it is in a cache."""
        if self.place != NULL:
            hot_load(self.place)
        hot_prefetch(<void *>self.result)

    cdef inline int restamp(self, object timestamp_ms) except -1:
        cdef int64_t now
        if not isinstance(timestamp_ms, int):  # Cython would take a float for one
            raise TypeError("a time is whole milliseconds")
        now = timestamp_ms
        self.stamp = timestamp_ms
        self.delta = <int64_t>(<uint64_t>now - <uint64_t>self.base)  # it wraps, where a time is before all times
        return 0

    cdef inline int64_t time(self, int64_t delta) noexcept:
        return <int64_t>(<uint64_t>self.base + <uint64_t>delta)

    cdef inline Py_ssize_t put_plain(self, object timestamp_ms, object key, object value, bytes headers) except -2:
        """The index of the record, or -1."""
        cdef Py_ssize_t key_size = -1, value_size
        cdef Py_ssize_t size
        if not PyBytes_CheckExact(value):
            return -1
        value_size = PyBytes_GET_SIZE(value)
        if timestamp_ms is not self.stamp:
            if self.room <= 0:
                return -1
            self.restamp(timestamp_ms)
        if key is not None:
            if not PyBytes_CheckExact(key):
                return -1
            key_size = PyBytes_GET_SIZE(key)
        if self.count >= _TABLE or key_size >= _TABLE or value_size >= _TABLE:
            return -1
        size = self.body_size(key_size, value_size, PyBytes_GET_SIZE(headers))
        if size >= _TABLE or size + width(size) > self.room:
            return -1
        return self.write(
            size, key_size, NULL if key is None else PyBytes_AS_STRING(key), value_size, PyBytes_AS_STRING(value),
            PyBytes_GET_SIZE(headers), PyBytes_AS_STRING(headers),
        )

    cdef inline Py_ssize_t body_size(self, Py_ssize_t key_size, Py_ssize_t value_size, Py_ssize_t headers_size) noexcept:
        cdef Py_ssize_t size = 1 + width(self.delta) + width(self.count) + width(key_size) + width(value_size) + headers_size
        if key_size > 0:
            size += key_size
        if value_size > 0:
            size += value_size
        return size

    cdef inline Py_ssize_t write(
        self, Py_ssize_t size, Py_ssize_t key_size, const char *key, Py_ssize_t value_size, const char *value,
        Py_ssize_t headers_size, const char *headers,
    ) noexcept:
        """Only what fits: `size`, and its own varint, are at most `room`."""
        cdef char *begin = self.place
        cdef char *at = put(begin, size)
        cdef Py_ssize_t index = self.count
        at[0] = 0
        at = put(at + 1, self.delta)
        at = put(at, index)
        at = put(at, key_size)
        if key_size > 0:
            memcpy(at, key, key_size)
            at += key_size
        at = put(at, value_size)
        if value_size > 0:
            memcpy(at, value, value_size)
            at += value_size
        if headers_size == 1:  # none: no call for that
            at[0] = headers[0]
        else:
            memcpy(at, headers, headers_size)
        at += headers_size
        self.place = at
        self.room -= at - begin
        self.count = index + 1
        if index == 0:
            self.key_size = key_size
            self.value_size = value_size
            self.moment = self.latest = self.delta
        else:
            self.has_even_keys &= key_size == self.key_size
            self.has_even_values &= value_size == self.value_size
            if self.delta != self.moment:
                self.has_even_moments = False
                if self.delta > self.latest:
                    self.latest = self.delta
        return index

    def append(self, timestamp_ms, key, value):
        """The record's delivery, or None: no room, or not a plain record. Every other way is `append_record`'s."""
        cdef Py_ssize_t index = self.put_plain(timestamp_ms, key, value, _NO_HEADERS)
        return None if index < 0 else delivery_of(self.result, index)

    def append_record(self, timestamp_ms, key, value, bytes headers not None):
        """`append` for any record; `headers` are encoded. None: no room."""
        cdef Py_ssize_t key_size = -1, value_size = -1
        cdef Py_ssize_t size
        cdef const char *key_at = NULL
        cdef const char *value_at = NULL
        if key is not None:
            key = key if PyBytes_CheckExact(key) else bytes(key)
            key_size, key_at = PyBytes_GET_SIZE(key), PyBytes_AS_STRING(key)
        if value is not None:
            value = value if PyBytes_CheckExact(value) else bytes(value)
            value_size, value_at = PyBytes_GET_SIZE(value), PyBytes_AS_STRING(value)
        if timestamp_ms is not self.stamp:
            self.restamp(timestamp_ms)
        size = self.body_size(key_size, value_size, PyBytes_GET_SIZE(headers))
        if size + width(size) > self.room:
            return None
        index = self.write(size, key_size, key_at, value_size, value_at, PyBytes_GET_SIZE(headers), PyBytes_AS_STRING(headers))
        return delivery_of(self.result, index)

    def append_many(self, timestamp_ms, keys, values, Py_ssize_t first):
        """`append` for those from `first` on, at most as many as there is room for; gives their number, 0: no room."""
        cdef Py_ssize_t begin, at, key_size = -1, value_size, size
        cdef const char *key_at = NULL
        cdef PyObject **value_items
        cdef PyObject **key_items = NULL
        values = values if is_flat(values) else list(values)
        keys = keys if keys is None or is_flat(keys) else list(keys)
        if timestamp_ms is not self.stamp:
            if self.room <= 0:
                return 0
            self.restamp(timestamp_ms)
        begin = self.count
        if first < 0 or (keys is not None and len(keys) < len(values)):
            raise IndexError("many begin at one that is, and all have a key or none")
        value_items = PySequence_Fast_ITEMS(values)  # from here on no code runs that could change either
        if keys is not None:
            key_items = PySequence_Fast_ITEMS(keys)
        for at in range(first, len(values)):
            if not is_bytes(value_items[at]):
                raise TypeError("a value of many is bytes")
            value_size = size_of(value_items[at])
            if key_items != NULL:
                if not is_bytes(key_items[at]):
                    raise TypeError("a key of many is bytes")
                key_size, key_at = size_of(key_items[at]), bytes_at(key_items[at])
            size = self.body_size(key_size, value_size, 1)
            if self.count >= _TABLE or size + width(size) > self.room:
                break
            self.write(size, key_size, key_at, value_size, bytes_at(value_items[at]), 1, b"\0")
        return self.count - begin

    @property
    def used(self):
        """As the twin's."""
        return self.granted - max(self.room, 0)

    def grow(self, Py_ssize_t room):
        """Give it room for so many more encoded bytes."""
        cdef PyObject *wider
        cdef Py_ssize_t used = 0
        if room < 0 or self.room < 0:
            raise ValueError(plain.CLOSED if self.room < 0 else plain.SHRINKS)
        if room > PY_SSIZE_T_MAX - self.granted:
            raise MemoryError
        wider = new_bytes(self.granted + room)  # not a realloc: one that fails would leave nothing of the records
        if self.buffer != NULL:
            used = self.place - bytes_at(self.buffer)
            memcpy(bytes_at(wider), bytes_at(self.buffer), used)
            Py_XDECREF(self.buffer)
        self.buffer = wider
        self.place = bytes_at(wider) + used
        self.granted += room
        self.room += room

    def detach(self):
        """As the twin's."""
        if self.shortcut >= 0:
            (<Shortcuts?>self.result.home.shortcuts).remove(self)
            self.shortcut = -1

    def close(self):
        """Its payload, base and max timestamp. What the records' metadata needs goes to the result."""
        cdef PyObject *buffer = self.buffer
        cdef Py_ssize_t used
        if self.room < 0:
            raise ValueError(plain.CLOSED)
        self.room = -1
        self.detach()
        result = self.result
        result.count = self.count
        result.kept = self.columns()
        if self.count == 0:
            return b"", self.base, self.time(self.delta)
        used = self.place - bytes_at(buffer)
        self.buffer = NULL
        self.place = NULL  # who asks a batch for room that has closed meanwhile looks there first
        _PyBytes_Resize(&buffer, used)
        payload = <object>buffer
        Py_XDECREF(buffer)
        return payload, self.base, self.time(self.latest)

    cdef Columns columns(self):
        cdef Columns columns = Columns.__new__(Columns)
        cdef Py_ssize_t count = self.count
        columns.key_size = self.key_size
        columns.value_size = self.value_size
        columns.moment = self.moment
        if not self.has_even_keys:
            columns.key_sizes = PyBytes_FromStringAndSize(NULL, count * sizeof(int32_t))
        if not self.has_even_values:
            columns.value_sizes = PyBytes_FromStringAndSize(NULL, count * sizeof(int32_t))
        if not self.has_even_moments:
            columns.moments = PyBytes_FromStringAndSize(NULL, count * sizeof(int64_t))
        if not (self.has_even_keys and self.has_even_values and self.has_even_moments):
            columns.read(bytes_at(self.buffer), count)
        return columns


@cython.no_gc
@cython.freelist(64)
@cython.final
cdef class Columns:
    """Sizes of keys, of values, and moments (a `Kept`): what all have in common once, else numbers, which None stands for.

    No container: the collector wakes by the count of these, and deliveries may be kept by the million.
    """

    cdef Py_ssize_t key_size, value_size
    cdef int64_t moment
    cdef bytes key_sizes, value_sizes, moments

    cdef void read(self, const char *place, Py_ssize_t count) noexcept:
        """What the records say of themselves, into the columns that there are."""
        cdef char *key_sizes = NULL if self.key_sizes is None else PyBytes_AS_STRING(self.key_sizes)
        cdef char *value_sizes = NULL if self.value_sizes is None else PyBytes_AS_STRING(self.value_sizes)
        cdef char *moments = NULL if self.moments is None else PyBytes_AS_STRING(self.moments)
        cdef const char *end
        cdef int64_t number, skipped
        cdef Py_ssize_t at
        for at in range(count):
            place = take(place, &number)
            end = place + number
            place = take(place + 1, &number)
            if moments != NULL:
                (<int64_t *>moments)[at] = number
            place = take(take(place, &skipped), &number)
            if key_sizes != NULL:
                (<int32_t *>key_sizes)[at] = <int32_t>number
            if value_sizes != NULL:
                take(place + (number if number > 0 else 0), &number)
                (<int32_t *>value_sizes)[at] = <int32_t>number
            place = end

    def __iter__(self):
        return iter((
            encoded_size(self.key_size) if self.key_sizes is None else array("i", self.key_sizes),
            encoded_size(self.value_size) if self.value_sizes is None else array("i", self.value_sizes),
            encoded_moment(self.moment) if self.moments is None else array("q", self.moments),
        ))


cdef object encoded_size(Py_ssize_t size):
    if size < 0:
        return _NULL
    return (<list>VARINT)[size] if size < _TABLE else varint(size)


cdef object encoded_moment(int64_t moment):
    return MOMENT[0] if moment == 0 else b"\0" + varint(moment)


cdef PyObject *new_bytes(Py_ssize_t size) except NULL:
    cdef object made = PyBytes_FromStringAndSize(NULL, size)
    Py_INCREF(made)
    return <PyObject *>made


FULL = OpenBatch(None, 0, -1)


# What deliveries read of their batch's result

cdef extern from *:
    """
    #include <structmember.h>
    /* Of a class that mypyc compiled nothing tells where its attributes are, so an object of it is looked through. */
    static Py_ssize_t hot_where(PyObject *example, PyObject *value) {
        Py_ssize_t found = -1, end = Py_TYPE(example)->tp_basicsize - (Py_ssize_t)sizeof(PyObject *);
        for (Py_ssize_t at = sizeof(PyObject); at <= end; at += sizeof(PyObject *)) {
            if (*(PyObject **)((char *)example + at) != value) { continue; }
            if (found >= 0) { found = -1; break; }
            found = at;
        }
        if (found < 0) { PyErr_Format(PyExc_SystemError, "%s: not in one place", Py_TYPE(example)->tp_name); }
        return found;
    }
    #define hot_held(object, type, offset) (Py_IS_TYPE(object, (PyTypeObject *)(type)) ? *(PyObject **)((char *)(object) + (offset)) : NULL)
    /* One metadata is read and let go, then the next: so its memory is kept. What is made here has a string, numbers and a name in it,
       is in no cycle, and the collector need not walk it. */
    enum { HOT_FIELDS = 7, HOT_SPARES = 256 };
    static PyTypeObject *hot_metadata_type;
    static PyTupleObject *hot_spares[HOT_SPARES];  /* each counts for its type */
    static int hot_spare_count;
    static PyObject *hot_metadata(PyObject **items) {  /* takes over what counts of them; NULL among them: an error is at hand */
        PyTupleObject *made = NULL;
        int at;
        for (at = 0; at < HOT_FIELDS && items[at] != NULL; at++) {}
        if (at == HOT_FIELDS) {
            if (hot_spare_count) { made = hot_spares[--hot_spare_count]; _Py_NewReference((PyObject *)made); }
            else { made = PyObject_GC_NewVar(PyTupleObject, hot_metadata_type, HOT_FIELDS); }
        }
        if (made == NULL) {
            for (at = 0; at < HOT_FIELDS; at++) { Py_XDECREF(items[at]); }
            return NULL;
        }
    #if PY_VERSION_HEX >= 0x030E0000
        made->ob_hash = -1;
    #endif
        for (at = 0; at < HOT_FIELDS; at++) { PyTuple_SET_ITEM(made, at, items[at]); }
        return (PyObject *)made;
    }
    static void hot_let_metadata_go(PyObject *held) {
        for (Py_ssize_t at = Py_SIZE(held); --at >= 0;) { Py_XDECREF(PyTuple_GET_ITEM(held, at)); }
        if (Py_SIZE(held) == HOT_FIELDS && hot_spare_count < HOT_SPARES) { hot_spares[hot_spare_count++] = (PyTupleObject *)held; return; }
        PyTypeObject *type = Py_TYPE(held);
        PyObject_GC_Del(held);
        Py_DECREF(type);
    }
    static void hot_metadata_dealloc(PyObject *held) {
        if (!Py_IS_TYPE(held, hot_metadata_type)) {  /* a subclass's, whose own leaves the type to that of a class */
            PyTypeObject *type = Py_TYPE(held);
            PyTuple_Type.tp_dealloc(held);
            Py_DECREF(type);
            return;
        }
        if (!PyObject_GC_IsTracked(held)) { hot_let_metadata_go(held); return; }
        PyObject_GC_UnTrack(held);  /* made elsewhere, of anything: of others like it, too */
        Py_TRASHCAN_BEGIN(held, hot_metadata_dealloc)
        hot_let_metadata_go(held);
        Py_TRASHCAN_END
    }
    static void hot_makes(PyObject *type) {
        while (hot_spare_count) { PyObject_GC_Del(hot_spares[--hot_spare_count]); Py_DECREF(hot_metadata_type); }  /* of an import before */
        Py_INCREF(type);
        hot_metadata_type = (PyTypeObject *)type;
        hot_metadata_type->tp_dealloc = hot_metadata_dealloc;
    }
    static PyObject *hot_item(PyObject *column, Py_ssize_t at) {
        if (!PyTuple_CheckExact(column) || at < 0 || at >= PyTuple_GET_SIZE(column)) { return PySequence_GetItem(column, at); }
        Py_INCREF(PyTuple_GET_ITEM(column, at));
        return PyTuple_GET_ITEM(column, at);
    }
    """
    Py_ssize_t hot_where(object example, object value) except -1
    PyObject *hot_held(object held, object type, Py_ssize_t offset) noexcept
    object hot_metadata(PyObject **items)
    void hot_makes(object type)
    PyObject *hot_item(PyObject *column, Py_ssize_t at) noexcept  # NULL: it raised
    PyObject *PyLong_FromLongLong(long long value) noexcept  # the same


cdef enum:  # attributes of BatchResult
    OUTCOME
    TOPIC
    PARTITION
    BASE_OFFSET
    BASE_TIMESTAMP
    TIMESTAMP_TYPE
    DELTAS
    KEY_SIZES
    VALUE_SIZES
    FUTURES
    CALLBACKS
    LOOKED_AT
    HOME
    LATE
    SLOTS

cdef tuple _slots = (
    "outcome", "topic", "partition", "base_offset", "base_timestamp", "timestamp_type", "_deltas", "_key_sizes", "_value_sizes",
    "futures", "callbacks", "looked_at", "home", "_late",
)
cdef Py_ssize_t _offsets[SLOTS]
cdef object _a_home = Home(SimpleNamespace(time=None), None)
_a_home.context = PyContext_CopyCurrent()
cdef object _a_result = BatchResult(_a_home, "an example's", TABLE + 1, TABLE + 2)
_a_result.base_offset = TABLE + 3
_a_result.looked_at = True
for _name in ("_deltas", "_key_sizes", "_value_sizes", "futures", "callbacks", "_late"):
    setattr(_a_result, _name, [])
cdef int _at
for _at in range(SLOTS):
    _offsets[_at] = hot_where(_a_result, getattr(_a_result, _slots[_at]))
cdef Py_ssize_t _loop_offset = hot_where(_a_home, _a_home.loop)
cdef Py_ssize_t _context_offset = hot_where(_a_home, _a_home.context)
cdef object _BatchResult = BatchResult
cdef object _Home = Home


cdef inline object held(object result, int slot):
    """An attribute of a `BatchResult`, read where it is: to look for it by name costs more than all else that is done to read a result."""
    cdef PyObject *found = hot_held(result, _BatchResult, _offsets[slot])
    return <object>found if found != NULL else looked_for(result, slot)


cdef object looked_for(object result, int slot):
    return getattr(result, _slots[slot])


cdef inline object loop_of(object result):
    home = held(result, HOME)
    cdef PyObject *found = hot_held(home, _Home, _loop_offset)
    return <object>found if found != NULL else home.loop


cdef int64_t _LAST_BASE = 2**60  # beyond it a sum may be more than C's numbers hold


# the last sum of a batch's first time and a record's: records come by the hundred in one millisecond
cdef object _last_first = None
cdef object _last_delta = None
cdef object _last_timestamp = None


cdef inline object timestamp_of(object first, object delta):
    global _last_first, _last_delta, _last_timestamp
    if delta is not _last_delta or first is not _last_first:
        _last_timestamp = first + delta
        _last_first, _last_delta = first, delta
    return _last_timestamp


cdef inline PyObject *counted(PyObject *held) noexcept:
    Py_INCREF(<object>held)
    return held


cdef inline PyObject *there(object result, int slot) noexcept:
    """An attribute of what is a `BatchResult` for sure, not counted."""
    return (<PyObject **>(<char *><void *>result + _offsets[slot]))[0]


hot_makes(RecordMetadata)


cdef object metadata_of(object result, Py_ssize_t index):
    """As `BatchResult.metadata`."""
    cdef PyObject *items[7]
    cdef object timestamp
    cdef int64_t base
    if type(result) is not _BatchResult:
        return result.metadata(index)
    base = <object>there(result, BASE_OFFSET)
    if base >= _LAST_BASE:
        return result.metadata(index)
    timestamp = <object>there(result, BASE_TIMESTAMP)
    if there(result, DELTAS) != <PyObject *>None:
        timestamp = timestamp_of(timestamp, (<object>there(result, DELTAS))[index])
    items[0] = counted(there(result, TOPIC))
    items[1] = counted(there(result, PARTITION))
    items[2] = PyLong_FromLongLong(base + index)
    items[3] = counted(<PyObject *>timestamp)
    items[4] = counted(there(result, TIMESTAMP_TYPE))
    items[5] = hot_item(there(result, KEY_SIZES), index)
    items[6] = hot_item(there(result, VALUE_SIZES), index)
    return hot_metadata(items)


# A delivery

@cython.final
cdef class Ready:
    """An awaitable that is over."""

    cdef object value

    def __await__(self):
        return self

    def __iter__(self):
        return self

    def __next__(self):
        raise StopIteration(self.value)

    def send(self, arg):
        raise StopIteration(self.value)

    def throw(self, kind, value=None, trace=None):
        raise kind if value is None else value

    def close(self):
        pass


cdef enum Waits:
    BEFORE
    BLOCKED
    WOKEN
    CANCELLED


@cython.freelist(256)
@cython.final
cdef class Wait:
    """One task's wait for one record: what `await delivery` steps, and the future that the task blocks on.

    Its task is run in the step that ends the wait, as a `waiter.Waiter` does it. Cancelling the task cancels this alone.
    """

    cdef object batch, callback, context  # `batch`: its result
    cdef Py_ssize_t index
    cdef Waits state
    cdef public bint _asyncio_future_blocking
    cdef void *sending  # where the task's `Sending` lies, if it is one's: to be fetched, never to be followed

    cdef int step(self, object arg, PyObject **given) except -1:
        result = self.batch
        if self.state == CANCELLED:
            raise CancelledError
        if self.state == BLOCKED:
            raise RuntimeError("await wasn't used with future")
        outcome = held(result, OUTCOME)
        if outcome is _SPLIT:
            result, index = result.place_of(self.index)
            self.batch, self.index = result, index
            outcome = held(result, OUTCOME)
        if outcome is _PENDING:
            futures = held(result, FUTURES)
            if futures is None:
                result.futures = [self]
            else:
                (<list?>futures).append(self)
            self.state = BLOCKED
            self._asyncio_future_blocking = True
            Py_INCREF(self)
            given[0] = <PyObject *>self
            return PYGEN_NEXT
        metadata = metadata_of(result, self.index) if outcome is _DONE else result.get(self.index)
        Py_INCREF(metadata)
        given[0] = <PyObject *>metadata
        return PYGEN_RETURN

    def __await__(self):
        return self

    def __iter__(self):
        return self

    def __next__(self):
        return self.send(None)

    def send(self, arg):
        cdef PyObject *given = NULL
        cdef int status = self.step(arg, &given)
        value = <object>given
        Py_XDECREF(given)
        if status == PYGEN_NEXT:
            return value
        raise StopIteration(value)

    def throw(self, kind, value=None, trace=None):
        self.close()
        if value is None:
            value = kind() if isinstance(kind, type) else kind
        raise value if trace is None else value.with_traceback(trace)

    def close(self):
        self.callback = self.context = None
        if self.state == BLOCKED:
            self.state = WOKEN

    def set_result(self, nothing):
        """Run the waiting task now. Only from a callback of the loop."""
        self.wake()

    cdef int wake(self) except -1:
        if self.state != BLOCKED:
            return 0
        self.state = WOKEN
        callback, context = self.callback, self.context
        self.callback = self.context = None
        if callback is None:
            return 0
        over = _over if wakes_a_task(callback) else self
        try:
            PyContext_Enter(context)
            try:
                callback(over)
            finally:
                PyContext_Exit(context)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            loop_of(self.batch).call_exception_handler({"message": f"Exception in callback {callback!r}", "exception": error})
        return 0

    def result(self):
        if self.state == CANCELLED:
            raise CancelledError
        if self.state != WOKEN:
            raise InvalidStateError("Result is not set.")

    def done(self):
        return self.state >= WOKEN

    def cancelled(self):
        return self.state == CANCELLED

    def cancel(self, msg=None):
        if self.state >= WOKEN:
            return False
        self.state = CANCELLED
        callback, context = self.callback, self.context
        self.callback = self.context = None
        if callback is not None:
            loop_of(self.batch).call_soon(callback, self, context=context)
        return True

    @property
    def _loop(self):
        """Where a task asks for it if there is no `get_loop`, which costs more."""
        return loop_of(self.batch)

    def add_done_callback(self, callback, *, context=None):
        if self.state >= WOKEN:
            loop_of(self.batch).call_soon(callback, self, context=context)
            return
        self.callback = callback
        self.context = PyContext_CopyCurrent() if context is None else context

    def remove_done_callback(self, callback):
        if self.callback is None or self.callback != callback:
            return 0
        self.callback = self.context = None
        return 1


# What a task is woken with: it only asks whether that is over, and of a future of asyncio's own without looking for the method by name.
cdef object _over = asyncio.Future(loop=SimpleNamespace(get_debug=bool))
_over.set_result(None)
cdef object _Task = asyncio.Task


cdef inline bint wakes_a_task(object callback) noexcept:
    """Whether it is the step of one of asyncio's tasks in C."""
    cdef PyObject *task = PyCFunction_GET_SELF(callback) if PyCFunction_CheckExact(callback) else NULL
    return task != NULL and type(<object>task) is _Task


cdef int wait_step(Wait self, object arg, PyObject **given) except -1:
    given[0] = NULL
    return self.step(arg, given)


hot_steps_by(Wait, <void *>wait_step)


cdef extern from *:
    """
    #if defined(__GNUC__)
    #define hot_fetch(at, lines) for (int line_ = 0; line_ < (lines); line_++) { __builtin_prefetch((void *)((size_t)(at) + 64 * line_)); }
    #else
    #define hot_fetch(at, lines)
    #endif
    """
    void hot_fetch(void *at, int lines)  # into the processor's caches; whatever lies there


cdef int fetch(list futures) except -1:
    """What their tasks' steps begin with, for all at once: of thousands nothing is in the caches, and each would wait for its own."""
    cdef Wait wait
    for future in futures:
        hot_fetch(<void *>future, 2)
    for future in futures:
        if type(future) is Wait:
            wait = <Wait>future
            hot_fetch(<void *>wait.callback, 1)
            hot_fetch(<void *>wait.context, 1)
            hot_fetch(wait.sending, 2)
    for future in futures:
        if type(future) is Wait and PyCFunction_CheckExact((<Wait>future).callback):
            hot_fetch(PyCFunction_GET_SELF((<Wait>future).callback), 4)  # the task
    return 0


def wake(futures):
    """As `waiter.wake`."""
    if PyList_CheckExact(futures) and len(futures) > 1:
        fetch(futures)
    for future in futures:
        if type(future) is Wait:
            (<Wait>future).wake()
        elif not future.done():
            future.set_result(None)


cdef inline Wait wait_for(object result, Py_ssize_t index):
    cdef Wait wait = Wait.__new__(Wait)
    wait.batch = result
    wait.index = index
    return wait


@cython.no_gc
@cython.freelist(512)
@cython.final
cdef class Delivery:
    __doc__ = plain.Delivery.__doc__

    cdef public object _result
    cdef public Py_ssize_t index
    _asyncio_future_blocking = False
    _cancel_message = None

    def __await__(self):
        """What an `await` steps: the delivery itself, where it is over."""
        return self if held(self._result, OUTCOME) is _DONE else wait_for(self._result, self.index)

    def _steps(self):
        """What `__await__` gives to those who call it: to them a delivery is no iterator."""
        cdef Ready ready
        if held(self._result, OUTCOME) is not _DONE:
            return wait_for(self._result, self.index)
        ready = Ready.__new__(Ready)
        ready.value = metadata_of(self._result, self.index)
        return ready

    def result(self):
        result = self._result
        return metadata_of(result, self.index) if held(result, OUTCOME) is _DONE else result.get(self.index)

    def exception(self):
        return None if held(self._result, OUTCOME) is _DONE else self._follow().failure()

    def done(self):
        outcome = held(self._result, OUTCOME)
        return outcome is not _PENDING and (outcome is not _SPLIT or self._follow().outcome is not _PENDING)

    def cancelled(self):
        return held(self._result, OUTCOME) is _CANCELLED

    def cancel(self, msg=None):
        result = self._follow()
        if held(result, OUTCOME) is not _PENDING:
            return False
        self._result = result.home.cancelled
        result.look()
        for callback, context in result.take_callbacks(self, None):
            result.home.loop.call_soon(callback, self, context=context)
        return True

    def get_loop(self):
        return loop_of(self._result)

    def add_done_callback(self, callback, *, context=None):
        result = self._result
        if held(result, OUTCOME) is _SPLIT:
            result = self._follow()
        if held(result, LOOKED_AT) is not True:
            result.looked_at = True
        if context is None:
            context = context_of(result)
        if held(result, OUTCOME) is not _PENDING:
            callbacks = held(result, LATE)
            if callbacks is None:
                result.add_callback(self, callback, context)
                return
        else:
            callbacks = held(result, CALLBACKS)
            if callbacks is None:
                result.callbacks = [self, callback, context]
                return
        (<list?>callbacks).append(self)
        (<list>callbacks).append(callback)
        (<list>callbacks).append(context)

    def remove_done_callback(self, callback):
        return len(self._result.take_callbacks(self, callback))

    def _follow(self):
        self._result, self.index = self._result.place_of(self.index)
        return self._result

    def _make_cancelled_error(self):
        return CancelledError()

    def __repr__(self):
        result = self._follow()
        where = f"{result.topic}-{result.partition}" if result.topic else "handle"
        return f"<Delivery {where} {result.outcome.value}>"


cdef int delivery_step(Delivery self, object arg, PyObject **given) except -1:
    given[0] = NULL
    metadata = metadata_of(self._result, self.index)
    given[0] = counted(<PyObject *>metadata)
    return PYGEN_RETURN


cdef object delivery_next(Delivery self):
    """What an `await` steps where it is looked on, and from Python 3.12 on; nobody else, as `iter` gives nothing of a delivery."""
    if held(self._result, OUTCOME) is not _DONE:
        raise TypeError("'Delivery' object is not an iterator")
    raise StopIteration(metadata_of(self._result, self.index))


hot_steps_by(Delivery, <void *>delivery_step)
hot_iterates_by(Delivery, <void *>delivery_next)
hot_alloc_plainly(Delivery)
hot_replace(Delivery, "__await__", Delivery._steps)


cdef object context_of(object result):
    """The context of here and now as `Home.shared` gives it; without a copy where nothing is in it: `gather` asks by the hundred.

    What is in it is compared, which is anybody's code, and may change it: so a copy of it is.
    """
    cdef object home = held(result, HOME)
    cdef PyObject *now = hot_context()
    cdef PyObject *kept = hot_held(home, _Home, _context_offset)
    if now != NULL and kept != NULL and <object>kept is not None and not len(<object>now) and not len(<object>kept):
        return <object>kept
    return home.shared(PyContext_CopyCurrent())


cdef inline Delivery delivery_of(object result, Py_ssize_t index):
    cdef Delivery delivery = Delivery.__new__(Delivery)
    delivery._result = result
    delivery.index = index
    return delivery


def uncollected(result):
    """As the twin's."""
    hot_untrack(result)


def make_delivery(result, Py_ssize_t index):
    """The delivery of the record at `index` of a batch."""
    return delivery_of(result, index)


# Sending

cdef enum:
    FEWEST_SHORTCUTS = 16
    MOST_SHORTCUTS = 65_536


@cython.final
cdef class Shortcuts:
    """From a topic straight to the batch that takes its records without a key: its route's sticky partition's open one.

    With topics by the thousand each step of the way there, entry, route, partition, is a wait for memory that no cache has; here one place
    in a table is looked at, or the one beside it. A batch leaves the table when it is no longer the one (`detach`).
    """

    cdef dict routes               # that they are shortcuts of: other ones have none
    cdef list table                # topic, batch, and so on
    cdef Py_ssize_t size           # of topics, a power of two

    cdef inline Py_ssize_t place_of(self, str topic) except -1:
        return 2 * <Py_ssize_t>((<uint64_t>hash(topic) * 0x9E3779B97F4A7C15U >> 32) & <uint64_t>(self.size - 1))

    cdef inline int call(self, object topic) except -1:
        """For what `find` looks at first."""
        if self.table is not None and PyUnicode_CheckExact(topic):
            hot_prefetch(&PySequence_Fast_ITEMS(self.table)[self.place_of(topic)])
        return 0

    cdef inline OpenBatch find(self, str topic):
        """None: there is no shortcut."""
        cdef PyObject **items = PySequence_Fast_ITEMS(self.table)
        cdef Py_ssize_t at = self.place_of(topic)
        if items[at] != <PyObject *>topic:
            if items[at ^ 2] == <PyObject *>topic or <object>items[at] != topic:
                at ^= 2
            if items[at] != <PyObject *>topic and <object>items[at] != topic:
                return None
        hot_prefetch(items[at + 1])
        hot_prefetch(<char *>items[at + 1] + 64)
        return <OpenBatch>items[at + 1]

    cdef int add(self, dict routes, str topic, OpenBatch batch, bint takes_keys) except -1:
        """Where its places are taken, there is none."""
        cdef Py_ssize_t at
        if routes is not self.routes or (2 * len(routes) > self.size and self.size < MOST_SHORTCUTS):
            self.begin(routes)
        batch.detach()
        at = self.place_of(topic)
        if self.table[at] is not None:
            at ^= 2
        if self.table[at] is None:
            self.table[at], self.table[at + 1] = topic, batch
            batch.shortcut, batch.takes_keys = at, takes_keys
            batch.result.home.shortcuts = self
        return 0

    cdef int remove(self, OpenBatch batch) except -1:
        if self.table[batch.shortcut + 1] is batch:  # else it was in a smaller table
            self.table[batch.shortcut] = self.table[batch.shortcut + 1] = None
        return 0

    cdef int begin(self, dict routes) except -1:
        """An empty table, never a smaller one: a batch that was in the last still has its place there."""
        self.size = max(self.size, FEWEST_SHORTCUTS)
        while self.size < 3 * len(routes) and self.size < MOST_SHORTCUTS:
            self.size *= 2
        self.table = [None] * (2 * self.size)
        self.routes = routes
        return 0


@cython.final
cdef class Way:
    __doc__ = plain.Way.__doc__

    cdef public dict fast
    cdef public object turn_ms, tick, make_room, goes_on, slowly, now
    cdef public Py_ssize_t taken
    cdef public bint takes_headers
    cdef object _here
    cdef void *thread              # its state, which costs less to ask for than its number; NULL: the loop is what counts
    cdef Shortcuts shortcuts
    cdef object last_topic, last_route  # whose key came last, and where `last_routes` led it
    cdef dict last_routes

    def __init__(self, tick, slowly):
        self.shortcuts = Shortcuts.__new__(Shortcuts)
        self.fast = {}
        self.here = None
        self.turn_ms = 0
        self.taken = 0
        self.takes_headers = True
        self.tick = tick
        self.goes_on = lambda: True
        self.make_room = lambda route, cell, key, value: None
        self.slowly = slowly

    @property
    def here(self):
        return self._here

    @here.setter
    def here(self, place):
        self._here = place
        self.thread = PyThreadState_Get() if _by_thread and place == PyThread_get_thread_ident() else NULL

    def forget(self, topic):
        """As the twin's."""
        if self.last_topic == topic:
            self.last_topic = self.last_route = self.last_routes = None

    cdef inline bint is_here(self) except -1:
        if _by_thread:
            return self.thread == PyThreadState_Get()
        return self._here is not None and _running_loop() is self._here


cdef Delivery go(Way way, object topic, object value, object key, tuple dress):
    """The fast way; None: take the slow one. Beyond the twin's it takes a dressed record, where an open batch has room for it.

    `dress`: partition, time and headers; None: a plain record, which has none of them.
    """
    cdef PyObject *found
    cdef object cell, now_ms = None
    cdef Delivery delivery
    cdef OpenBatch straight = None
    cdef bint takes_keys
    if not PyUnicode_CheckExact(topic) or way.fast is None or not way.is_here():
        return None
    if dress is not None and is_bare(dress):
        dress = None
    if dress is not None:
        pass
    elif topic is way.last_topic and way.last_routes is way.fast and PyBytes_CheckExact(key):
        cell = cell_of(way.last_route, <bytes>key)
        # else another route took that one's place; one that is gone has no batch open
        if cell is not None and route_of(cell) is way.last_route:
            now_ms = now_for_one(way)
            if now_ms is None:
                return None
            delivery = put_in(open_of(cell), now_ms, key, value, _NO_HEADERS)
            if delivery is not None:
                return delivery
    elif way.shortcuts.routes is way.fast:
        straight = way.shortcuts.find(topic)
        if straight is not None and (key is None or straight.takes_keys):
            now_ms = now_for_one(way)
            if now_ms is None:
                return None
            delivery = put_in(straight, now_ms, key, value, _NO_HEADERS)
            if delivery is not None:
                return delivery
    found = PyDict_GetItemWithError(way.fast, topic)
    if found == NULL:
        return None
    route = <object>found
    if dress is not None and dress[0] is not None:
        cell = numbered_cell(route, dress[0])
    elif key is None:
        cell = sticky_of(route)
    elif PyBytes_CheckExact(key):
        cell = cell_of(route, <bytes>key)
        if len(cells_of(route)) > 1:  # else it has its shortcut, or will have
            way.last_topic, way.last_route, way.last_routes = topic, route, way.fast
    else:
        return None
    if dress is not None:
        return None if cell is None else put_dressed(way, cell, value, key, dress[1], dress[2])
    if now_ms is None:  # else it was counted above: twice, it would be taken for two sends of one task
        now_ms = now_for_one(way)
    if now_ms is None:
        return None
    opened = None if cell is None else open_of(cell)
    delivery = put_in(opened, now_ms, key, value, _NO_HEADERS)
    if delivery is not None:
        takes_keys = len(cells_of(route)) == 1
        if straight is None and (key is None or takes_keys):
            way.shortcuts.add(way.fast, topic, <OpenBatch>opened, takes_keys)
        return delivery
    cell = way.make_room(route, cell, key, value)
    return None if cell is None else put_in(open_of(cell), now_ms, key, value, _NO_HEADERS)


ctypedef PyObject *(*Quietly)(Way, PyObject *, PyObject *, PyObject *, PyObject *) noexcept  # it counts none of them once more
cdef Quietly go_quietly = <Quietly><void *>go  # NULL: it raised, which is looked at by hand, as `try` costs something each time


cdef object _Route = Route
cdef object _Cell = Cell
cdef object _a_route = Route("", b"")
cdef object _a_cell = Cell(_a_route, 0, -1, FULL)
_a_route.sticky = _a_cell
cdef Py_ssize_t _sticky_offset = hot_where(_a_route, _a_cell)
cdef Py_ssize_t _cells_offset = hot_where(_a_route, _a_route.cells)
cdef Py_ssize_t _open_offset = hot_where(_a_cell, FULL)
cdef Py_ssize_t _route_offset = hot_where(_a_cell, _a_route)
_a_route = _a_cell = None


cdef inline object sticky_of(object route):
    cdef PyObject *found = hot_held(route, _Route, _sticky_offset)
    return <object>found if found != NULL else route.sticky


cdef inline list cells_of(object route):
    cdef PyObject *found = hot_held(route, _Route, _cells_offset)
    return <object>found if found != NULL else route.cells


cdef inline object open_of(object cell):
    cdef PyObject *found = hot_held(cell, _Cell, _open_offset)
    return <object>found if found != NULL else cell.open


cdef inline object route_of(object cell):
    cdef PyObject *found = hot_held(cell, _Cell, _route_offset)
    return <object>found if found != NULL else cell.route


cdef inline object now_for_one(Way way):
    """The turn's time, for one record more; None: the turn took enough in."""
    cdef object now_ms = way.turn_ms
    if now_ms is _ZERO:  # there is one 0
        now_ms = way.tick()
    way.taken += 1
    return None if way.taken > _TURN_RECORDS and not way.goes_on() else now_ms


cdef inline object cell_of(object route, bytes key):
    cdef list cells = cells_of(route)
    cdef Py_ssize_t size = len(cells)
    if not size:
        return None
    return cells[(hashed(<const unsigned char *>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key)) & 0x7FFFFFFFU) % <uint32_t>size]


cdef object numbered_cell(object route, object partition):
    cdef list cells = cells_of(route)
    cdef Py_ssize_t index
    if not PyLong_CheckExact(partition):
        return None
    try:
        index = partition
    except OverflowError:
        return None
    return cells[index] if 0 <= index < len(cells) else None


cdef Delivery put_dressed(Way way, object cell, object value, object key, object timestamp_ms, object headers):
    """A record that is not plain, where an open batch takes it as it is."""
    cdef bytes encoded = _NO_HEADERS
    cdef int64_t moment
    cdef object now_ms
    if not is_empty(headers):
        encoded = encoded_headers(headers) if way.takes_headers else None
        if encoded is None:
            return None
    if timestamp_ms is not None:
        if not PyLong_CheckExact(timestamp_ms):
            return None
        try:
            moment = timestamp_ms
        except OverflowError:
            return None
        if moment < 0:
            return None
    now_ms = now_for_one(way)
    if now_ms is None:
        return None
    return put_in(open_of(cell), now_ms if timestamp_ms is None else timestamp_ms, key, value, encoded)


cdef inline Delivery put_in(object opened, object now_ms, object key, object value, bytes headers):
    cdef Py_ssize_t index
    if type(opened) is not OpenBatch:
        return None
    (<OpenBatch>opened).call()
    index = (<OpenBatch>opened).put_plain(now_ms, key, value, headers)
    return delivery_of((<OpenBatch>opened).result, index) if index >= 0 else None


cdef enum State:
    NEW
    WAITING
    OVER


@cython.freelist(64)
@cython.no_gc_clear
@cython.final
cdef class Sending:
    """What `send` gives: a coroutine, whose first step is the whole way of most records.

    It is none of CPython's own, and `inspect.iscoroutine` and `isinstance` say it is: it is stepped, thrown into, closed, and
    complained about if nobody awaits it, like one. What shows its frame, or its code, makes the twin's coroutine first.
    """

    cdef SendPath path
    cdef object topic, value, key
    cdef tuple dress               # partition, time and headers
    cdef bint is_for_the_end       # made by `send_and_wait`
    cdef object inner              # the coroutine of the slow way, or the twin's
    cdef State state
    cdef bint is_running
    cdef bint waits                # for the record's end; no longer once it does

    cdef object __weakref__

    @property
    def __class__(self):
        return CoroutineType

    cdef inline object twin(self):
        """The function of `plain`."""
        return _plain_send_and_wait if self.is_for_the_end else _plain_send

    @property
    def __name__(self):
        return self.twin().__name__

    @property
    def __qualname__(self):
        return self.twin().__qualname__

    cdef inline int end(self) except -1:
        cdef SendPath path = self.path
        self.state = OVER
        self.path = None
        self.value = self.key = self.dress = None  # the rest is small
        if self.inner is not None:
            self.inner = None
        if path is not None and path.spare is None and not hot_has_weakrefs(self):
            path.spare = self
        return 0

    cdef object real(self):
        """The twin's coroutine; only before the first step."""
        if self.inner is None:
            self.waits = False
            partition, timestamp_ms, headers = worn(self.dress)
            self.inner = self.twin()(
                self.path, self.topic, self.value, self.key, partition=partition, timestamp_ms=timestamp_ms, headers=headers
            )
        return self.inner

    cdef int step(self, object arg, PyObject **result) except -1:
        cdef PyObject *found
        cdef PySendResult status
        if self.is_running:
            raise ValueError("coroutine already executing")
        if self.state == OVER:
            raise RuntimeError("cannot reuse already awaited coroutine")
        if self.state == NEW:
            if arg is not None:
                raise TypeError("can't send non-None value to a just-started coroutine")
            self.state = WAITING
            if self.inner is None:
                self.is_running = True
                found = self.first_step()
                self.is_running = False
                if found != NULL and not self.waits:
                    self.end()
                    result[0] = found
                    return PYGEN_RETURN
                if found != NULL:
                    self.wait_for_end(found)
        self.is_running = True
        status = PyIter_Send(self.inner, arg, result)
        if status == PYGEN_RETURN and self.waits:
            self.waits = False
            queued = <object>result[0]
            Py_XDECREF(result[0])
            result[0] = NULL  # it goes: who sees an error would take it for the result
            try:
                self.inner = queued.__await__()
            except BaseException:
                self.is_running = False
                self.end()
                raise
            status = PyIter_Send(self.inner, None, result)
        self.is_running = False
        if status != PYGEN_NEXT:
            self.end()
        return status

    cdef inline PyObject *first_step(self) except? NULL:
        """Its delivery, counted; NULL: `inner` is to be stepped. What it raises is this coroutine's end."""
        cdef Way way = None
        cdef PyObject *found
        cdef bint has_failed = False
        if self.path is not None:
            way = self.path._way
        if way is not None:
            # nobody takes them away while it runs
            found = go_quietly(way, <PyObject *>self.topic, <PyObject *>self.value, <PyObject *>self.key, <PyObject *>self.dress)
            if found != <PyObject *>None and found != NULL:
                return found
            has_failed = found == NULL
            Py_XDECREF(found)
        self.take_slow_way(way, has_failed)
        return NULL

    cdef int take_slow_way(self, Way way, bint has_failed) except -1:
        """`has_failed`: going fast raised; the slow way says what is wrong with a record, if that is it."""
        try:
            if has_failed:
                try:
                    hot_raise()
                except (KeyError, TypeError, AttributeError):
                    pass
            if way is None:
                raise AttributeError(f"'{type(self.path).__name__}' object has no attribute '_way'")
            partition, timestamp_ms, headers = worn(self.dress)
            slow = way.slowly(self.topic, self.value, self.key, partition, timestamp_ms, headers)
            self.inner = slow if PyCoro_CheckExact(slow) else slow.__await__()
        except BaseException:
            self.is_running = False
            self.end()
            raise
        return 0

    cdef int wait_for_end(self, PyObject *delivery) except -1:
        cdef Delivery queued = <Delivery>delivery
        cdef Wait wait
        Py_XDECREF(delivery)
        self.waits = False
        wait = wait_for(queued._result, queued.index)
        wait.sending = <void *>self
        self.inner = wait
        return 0

    def __await__(self):
        if self.state == WAITING and not self.is_running:
            raise RuntimeError("coroutine is being awaited already")
        return self

    def __next__(self):
        return self.send(None)

    def _steps(self):
        """What `__await__` gives to those who call it: an `await` steps the coroutine itself, which nobody else may iterate."""
        cdef Steps steps = Steps.__new__(Steps)
        steps.sending = self
        return steps

    def __reduce_ex__(self, protocol):
        raise TypeError("cannot pickle 'coroutine' object")

    def send(self, arg):
        """As of a coroutine."""
        cdef PyObject *result = NULL
        cdef int status = self.step(arg, &result)
        value = <object>result
        Py_XDECREF(result)
        if status == PYGEN_NEXT:
            return value
        raise StopIteration(value)

    def throw(self, kind, value=None, trace=None):
        """As of a coroutine."""
        if self.is_running:
            raise ValueError("coroutine already executing")
        if self.state == OVER:
            raise RuntimeError("cannot reuse already awaited coroutine")
        inner = self.inner if self.inner is not None else self.real()
        self.is_running = True
        try:
            given = inner.throw(kind) if value is None and trace is None else inner.throw(kind, value, trace)
        except BaseException as error:
            self.is_running = False
            if self.waits and isinstance(error, StopIteration):  # it was queued all the same
                self.waits = False
                self.inner = error.value.__await__()
                return self.send(None)
            if getattr(inner, "cr_frame", None) is None:  # else that was nothing to throw
                self.end()
            raise
        self.is_running = False
        self.state = WAITING
        return given

    def close(self):
        """As of a coroutine."""
        if self.is_running:
            raise ValueError("coroutine already executing")
        inner = self.inner
        if self.state != OVER and inner is not None:
            self.is_running = True
            try:
                inner.close()
            finally:
                self.is_running = False
                self.end()
        else:
            self.end()

    @property
    def cr_running(self):
        return bool(self.is_running)

    @property
    def cr_suspended(self):
        return self.state == WAITING and not self.is_running

    @property
    def cr_frame(self):
        if self.state == NEW:
            return self.real().cr_frame
        return getattr(self.inner, "cr_frame", None)

    @property
    def cr_await(self):
        return getattr(self.inner, "cr_await", None)

    @property
    def cr_code(self):
        return getattr(self.inner if self.state == WAITING else None, "cr_code", self.twin().__code__)

    @property
    def cr_origin(self):
        return getattr(self.inner, "cr_origin", None)

    def __repr__(self):
        return f"<coroutine object {self.twin().__qualname__} at {id(self):#x}>"


cdef inline bint is_empty(object headers):
    return (type(headers) is tuple or type(headers) is list) and len(headers) == 0


cdef int sending_step(Sending self, object arg, PyObject **result) except -1:
    result[0] = NULL
    return self.step(arg, result)


cdef bint is_left(PyObject *sending) noexcept:
    """Whether it goes without having been awaited."""
    return (<Sending>sending).state == NEW and (<Sending>sending).inner is None and (<Sending>sending).path is not None


cdef void complain(PyObject *sending) noexcept:
    (<Sending>sending).real()  # which complains that it was never awaited


@cython.final
cdef class Steps:
    """A coroutine's steps, as an iterator."""

    cdef Sending sending

    def __iter__(self):
        return self

    def __next__(self):
        return self.sending.send(None)

    def send(self, arg):
        return self.sending.send(arg)

    def throw(self, *error):
        return self.sending.throw(*error)

    def close(self):
        return self.sending.close()


hot_steps_by(Sending, <void *>sending_step)
hot_ends_by(Sending, <void *>is_left, <void *>complain)
hot_replace(Sending, "__await__", Sending._steps)
Coroutine.register(Sending)


cdef inline tuple dress_of(object partition, object timestamp_ms, object headers):
    """None: the record is plain."""
    if partition is None and timestamp_ms is None and headers is _nothing:
        return None
    return (partition, timestamp_ms, headers)


cdef inline bint is_bare(tuple dress):
    """Whether nothing is in it after all, as of headers in an empty list: it is looked at when the record is sent."""
    return dress[0] is None and dress[1] is None and is_empty(dress[2])


cdef inline tuple worn(tuple dress):
    return _undressed if dress is None else dress


cdef inline Sending sending_of(
    SendPath path, bint waits, object topic, object value, object key, object partition, object timestamp_ms, object headers
):
    cdef Sending sending
    if path.spare is not None and Py_REFCNT(<PyObject *>path.spare) == 1:
        sending, path.spare = path.spare, None
        sending.state = NEW
    else:
        sending = Sending.__new__(Sending)
    if path._way is not None:
        path._way.shortcuts.call(topic)
    sending.path = path
    sending.waits = sending.is_for_the_end = waits
    sending.topic = topic
    sending.value = value
    sending.key = key
    sending.dress = dress_of(partition, timestamp_ms, headers)
    if hot_tracks_origins():  # asyncio's debug mode
        sending.real()
    return sending


@cython.binding(True)  # frameworks ask its methods what they are; all others are called without the detour by a function object
cdef class SendPath:
    """`send`, and what it touches when nothing is in its way."""

    cdef public Way _way
    cdef Sending spare             # one that is over: the next, once nobody else has it, as making one costs a third of what it does
    cdef bint has_own_send         # a subclass gives another: `send_and_wait` is to go by that

    def __cinit__(self, *arguments, **options):
        self.has_own_send = type(self).send is not SendPath.send

    def __class_getitem__(cls, kinds):
        return cls

    def send(self, topic, value=None, key=None, *, partition=None, timestamp_ms=None, headers=_nothing):
        return sending_of(self, False, topic, value, key, partition, timestamp_ms, headers)

    def send_and_wait(self, topic, value=None, key=None, *, partition=None, timestamp_ms=None, headers=_nothing):
        if self.has_own_send:
            return _plain_send_and_wait(self, topic, value, key, partition=partition, timestamp_ms=timestamp_ms, headers=headers)
        return sending_of(self, True, topic, value, key, partition, timestamp_ms, headers)

    def send_nowait(self, topic, value=None, key=None, *, partition=None, timestamp_ms=None, headers=_nothing):
        cdef Way way = self._way
        cdef Delivery delivery = None
        if way is None:
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '_way'")
        try:
            delivery = go(way, topic, value, key, dress_of(partition, timestamp_ms, headers))
        except (KeyError, TypeError, AttributeError):
            pass
        return delivery if delivery is not None else way.now(topic, value, key, partition, timestamp_ms, headers)


cdef list _texts = []  # of methods, as long as these: that is, for good


cdef bytes _described(name, twin):
    """Its signature and documentation, as functions made in C have them."""
    given = inspect.signature(twin)
    bare = given.replace(
        parameters=[one.replace(annotation=one.empty) for one in given.parameters.values()], return_annotation=given.empty
    )
    return f"{name}{str(bare).replace('(self', '($self')}\n--\n\n{inspect.cleandoc(twin.__doc__)}".encode()


def _dress(function, twin):
    """Let those who ask what a function is see the twin's."""
    hot_give_code(function, twin.__code__)
    function.__wrapped__ = twin
    function.__doc__ = twin.__doc__
    function.__annotations__ = twin.__annotations__


def _dress_coroutine(function, twin):
    _dress(function, twin)
    function._is_coroutine = asyncio.coroutines._is_coroutine
    if hasattr(inspect, "markcoroutinefunction"):
        inspect.markcoroutinefunction(function)


cdef Sending plain_sending_of(SendPath path, object topic, object value, object key):
    return sending_of(path, False, topic, value, key, None, None, _nothing)


hot_called_by(SendPath.send, SendPath, <void *>plain_sending_of)
_dress_coroutine(SendPath.send, _plain_send)
_dress_coroutine(SendPath.send_and_wait, _plain_send_and_wait)
_dress(SendPath.send_nowait, plain.SendPath.send_nowait)


def _describe(name, twin):
    """What is public says what it does in the twin's words."""
    cdef bytes text = _described(name, twin)
    _texts.append(text)
    hot_describe(getattr(Delivery, name), text)


for _name, _method in vars(plain.Delivery).items():
    if not _name.startswith("_") and _method.__doc__:
        _describe(_name, _method)
