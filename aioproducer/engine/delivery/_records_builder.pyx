# cython: language_level=3, boundscheck=True, wraparound=False, nonecheck=True, auto_pickle=False
# cython: binding=False, embedsignature=True, embedsignature.format=clinic
"""Holds `MemoryRecordsBuilder`, which writes records into their batch, compiled. The twin is `records_builder.py`.

1. A record is encoded in place, into the buffer of its batch: one copy, and no object of its own. When the batch closes, its payload is
   a bytes object of its own. So no code can overwrite a payload that a transport still holds.
2. The user's objects are checked before a byte of them is copied. No user code runs between the check and the copy.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_CheckExact, PyList_GET_ITEM
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from cpython.object cimport PyObject
from cpython.sequence cimport PySequence_Fast_ITEMS
from cpython.tuple cimport PyTuple_CheckExact, PyTuple_GET_ITEM, PyTuple_GET_SIZE
from cpython.unicode cimport PyUnicode_CheckExact
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.string cimport memcpy

from aioproducer.engine.delivery._delivery cimport delivery_of
from aioproducer.engine.delivery._produce_request_result cimport ProduceRequestResult

from array import array

from aioproducer.records.varints import NO_DELTA, NULL as _NULL, SHORT, TABLE, varint

# Records are in the batch's buffer, and the bytes of the buffer are counted.
RECORD_OVERHEAD = 0

cdef extern from "Python.h":
    const Py_ssize_t PY_SSIZE_T_MAX
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL
    # These accept borrowed references.
    char *bytes_at "PyBytes_AS_STRING"(PyObject *held)
    bint is_bytes "PyBytes_CheckExact"(PyObject *held)
    Py_ssize_t size_of "PyBytes_GET_SIZE"(PyObject *held)

cdef Py_ssize_t _TABLE = TABLE
cdef bytes _NO_HEADERS = b"\0"


cdef inline int width(int64_t value) noexcept nogil:
    """Return the number of bytes of a zigzag varint."""
    cdef uint64_t rest = (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)
    cdef int size = 1
    while rest >= 0x80:
        rest >>= 7
        size += 1
    return size


cdef inline char *put(char *at, int64_t value) noexcept nogil:
    """Write a zigzag varint. Returns the address of its end."""
    cdef uint64_t rest = (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)
    while rest >= 0x80:
        at[0] = <char>((rest & 0x7F) | 0x80)
        at += 1
        rest >>= 7
    at[0] = <char>rest
    return at + 1


cdef inline const char *take(const char *at, int64_t *value) noexcept nogil:
    """Read a varint that `put` wrote. Returns the address of its end."""
    cdef uint64_t rest = 0
    cdef int shift = 0
    while at[0] & 0x80:
        rest |= <uint64_t>(at[0] & 0x7F) << shift
        shift += 7
        at += 1
    rest |= <uint64_t>(at[0] & 0x7F) << shift
    value[0] = <int64_t>(rest >> 1) ^ -<int64_t>(rest & 1)
    return at + 1


cdef enum:
    # The most headers of a record on the fast path.
    MOST_HEADERS = 32
    # The most bytes of its keys and values, without their sizes.
    MOST_OF_HEADERS = 4096


cdef bytes encoded_headers(object headers):
    """Encode headers as `record_batch.encode_headers` does.

    Returns None if a header is not of a plain kind, or if there are too many for the fast path.
    """
    # The key and the value of each header. No code runs that could change them.
    cdef const char *texts[2 * MOST_HEADERS]
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
        except UnicodeEncodeError:
            # The key has half of a surrogate pair: `encode_headers` refuses it.
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


@cython.no_gc
@cython.final
cdef class MemoryRecordsBuilder:
    """Encodes a batch's records one after the other into one buffer.

    It is Java's MemoryRecordsBuilder, and an `interfaces.OpenBatch`. The cyclic collector does not see it: other objects refer to its
    result, too.

    Attributes:
        result: the result that the records' deliveries share.
        count: the number of records in the batch.
        granted: bytes of encoded records that the batch may take, including those that it has.
    """

    def __cinit__(self, ProduceRequestResult result, timestamp_ms, Py_ssize_t room):
        self.result = result
        self.stamp = timestamp_ms
        self.base = timestamp_ms
        self.granted = self.bytes_left = room
        self.has_even_keys = self.has_even_values = self.has_even_deltas = True
        if room > 0:
            self.buffer = self.place = <char *>PyMem_Malloc(room)
            if self.buffer == NULL:
                raise MemoryError

    def __dealloc__(self):
        PyMem_Free(self.buffer)

    def append(self, timestamp_ms, key, value):
        """Append a plain record. Returns its delivery, or None: too few bytes are left, or it is no plain record.

        `append_record` accepts every record.
        """
        cdef Py_ssize_t index = self.append_plain(timestamp_ms, key, value, _NO_HEADERS)
        return None if index < 0 else delivery_of(self.result, index)

    cdef Py_ssize_t append_plain(self, object timestamp_ms, object key, object value, bytes headers) except -2:
        """Append a plain record with encoded headers. Returns its index, or -1: too few bytes are left, or it is no plain record."""
        cdef Py_ssize_t key_size = -1, value_size
        cdef Py_ssize_t size
        if not PyBytes_CheckExact(value):
            return -1
        value_size = PyBytes_GET_SIZE(value)
        if timestamp_ms is not self.stamp:
            if self.bytes_left <= 0:
                return -1
            self.set_time(timestamp_ms)
        if key is not None:
            if not PyBytes_CheckExact(key):
                return -1
            key_size = PyBytes_GET_SIZE(key)
        if self.count >= _TABLE or key_size >= _TABLE or value_size >= _TABLE:
            return -1
        size = self.body_size(key_size, value_size, PyBytes_GET_SIZE(headers))
        if size >= _TABLE or size + width(size) > self.bytes_left:
            return -1
        return self.write(
            size, key_size, NULL if key is None else PyBytes_AS_STRING(key), value_size, PyBytes_AS_STRING(value),
            PyBytes_GET_SIZE(headers), PyBytes_AS_STRING(headers),
        )

    def append_record(self, timestamp_ms, key, value, bytes headers not None):
        """Append any record; `headers` are encoded. Returns its delivery, or None: too few bytes are left."""
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
            self.set_time(timestamp_ms)
        size = self.body_size(key_size, value_size, PyBytes_GET_SIZE(headers))
        if size + width(size) > self.bytes_left:
            return None
        index = self.write(size, key_size, key_at, value_size, value_at, PyBytes_GET_SIZE(headers), PyBytes_AS_STRING(headers))
        return delivery_of(self.result, index)

    def append_many(self, timestamp_ms, keys, values, Py_ssize_t first):
        """Append the records from `first` on, as many as fit. Returns their number; 0: too few bytes are left."""
        cdef Py_ssize_t begin, at, key_size = -1, value_size, size
        cdef const char *key_at = NULL
        cdef PyObject **value_items
        cdef PyObject **key_items = NULL
        values = values if is_flat(values) else list(values)
        keys = keys if keys is None or is_flat(keys) else list(keys)
        if timestamp_ms is not self.stamp:
            if self.bytes_left <= 0:
                return 0
            self.set_time(timestamp_ms)
        begin = self.count
        if first < 0 or (keys is not None and len(keys) < len(values)):
            raise IndexError("many begin at one that is, and all have a key or none")
        # From here on no code runs that could change `values` or `keys`.
        value_items = PySequence_Fast_ITEMS(values)
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
            if self.count >= _TABLE or size + width(size) > self.bytes_left:
                break
            self.write(size, key_size, key_at, value_size, bytes_at(value_items[at]), 1, b"\0")
        return self.count - begin

    cdef int set_time(self, object timestamp_ms) except -1:
        cdef int64_t now
        # Cython would convert a float.
        if not isinstance(timestamp_ms, int):
            raise TypeError("a time is whole milliseconds")
        now = timestamp_ms
        self.stamp = timestamp_ms
        # It wraps if a timestamp is before all valid ones.
        self.delta = <int64_t>(<uint64_t>now - <uint64_t>self.base)
        return 0

    cdef int64_t time_at(self, int64_t delta) noexcept:
        return <int64_t>(<uint64_t>self.base + <uint64_t>delta)

    cdef Py_ssize_t body_size(self, Py_ssize_t key_size, Py_ssize_t value_size, Py_ssize_t headers_size) noexcept:
        cdef Py_ssize_t size = 1 + width(self.delta) + width(self.count) + width(key_size) + width(value_size) + headers_size
        if key_size > 0:
            size += key_size
        if value_size > 0:
            size += value_size
        return size

    cdef Py_ssize_t write(
        self, Py_ssize_t size, Py_ssize_t key_size, const char *key, Py_ssize_t value_size, const char *value,
        Py_ssize_t headers_size, const char *headers,
    ) noexcept:
        """Write a record that fits: `size` and its own varint take at most `bytes_left`. Returns its index."""
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
        # An empty header list is one byte: it needs no call.
        if headers_size == 1:
            at[0] = headers[0]
        else:
            memcpy(at, headers, headers_size)
        at += headers_size
        self.place = at
        self.bytes_left -= at - begin
        self.count = index + 1
        if index == 0:
            self.key_size = key_size
            self.value_size = value_size
            self.first_delta = self.latest = self.delta
        else:
            self.has_even_keys &= key_size == self.key_size
            self.has_even_values &= value_size == self.value_size
            if self.delta != self.first_delta:
                self.has_even_deltas = False
                if self.delta > self.latest:
                    self.latest = self.delta
        return index

    @property
    def used(self):
        """Return the bytes of `granted` that records take. The number has no meaning once the batch has closed."""
        return self.granted - max(self.bytes_left, 0)

    def grow(self, Py_ssize_t room):
        """Grant the batch `room` more bytes of encoded records."""
        cdef char *wider
        cdef Py_ssize_t used = self.place - self.buffer
        if room < 0 or self.bytes_left < 0:
            raise refused(self.bytes_left < 0)
        if room > PY_SSIZE_T_MAX - self.granted:
            raise MemoryError
        wider = <char *>PyMem_Realloc(self.buffer, self.granted + room)
        if wider == NULL:
            raise MemoryError
        self.buffer = wider
        self.place = wider + used
        self.granted += room
        self.bytes_left += room

    def close(self):
        """Close the batch. Returns its payload, base timestamp and max timestamp; the same again if it is closed.

        The data of the records' metadata goes to the result, and the buffer is freed.
        """
        cdef Py_ssize_t used = self.place - self.buffer
        if self.payload is None:
            if self.bytes_left < 0:
                raise refused(True)
            payload = PyBytes_FromStringAndSize(self.buffer, used) if used else b""
            sizes = self.record_sizes()
            PyMem_Free(self.buffer)
            self.buffer = self.place = NULL
            self.bytes_left = -1
            if not self.count:
                self.latest = self.delta
            self.payload = payload
            self.result.count = self.count
            self.result.record_sizes = sizes
        return self.payload, self.base, self.time_at(self.latest)

    cdef RecordSizes record_sizes(self):
        cdef RecordSizes sizes = RecordSizes.__new__(RecordSizes)
        cdef Py_ssize_t count = self.count
        sizes.key_size = self.key_size
        sizes.value_size = self.value_size
        sizes.delta = self.first_delta
        if not self.has_even_keys:
            sizes.key_sizes = PyBytes_FromStringAndSize(NULL, count * sizeof(int32_t))
        if not self.has_even_values:
            sizes.value_sizes = PyBytes_FromStringAndSize(NULL, count * sizeof(int32_t))
        if not self.has_even_deltas:
            sizes.deltas = PyBytes_FromStringAndSize(NULL, count * sizeof(int64_t))
        if not (self.has_even_keys and self.has_even_values and self.has_even_deltas):
            sizes.read(self.buffer, count)
        return sizes


@cython.no_gc
@cython.freelist(64)
@cython.final
cdef class RecordSizes:
    """Holds the sizes of keys and values and the timestamp deltas of a closed batch (a `produce_request_result.Kept`).

    A value that all records share is kept once. This is no container: the number of containers determines when the cyclic collector
    runs, and deliveries may be kept by the million.
    """

    cdef void read(self, const char *place, Py_ssize_t count) noexcept:
        """Read the sizes and deltas of the records into those columns that exist."""
        cdef char *key_sizes = NULL if self.key_sizes is None else PyBytes_AS_STRING(self.key_sizes)
        cdef char *value_sizes = NULL if self.value_sizes is None else PyBytes_AS_STRING(self.value_sizes)
        cdef char *deltas = NULL if self.deltas is None else PyBytes_AS_STRING(self.deltas)
        cdef const char *end
        cdef int64_t number, skipped
        cdef Py_ssize_t at
        for at in range(count):
            place = take(place, &number)
            end = place + number
            place = take(place + 1, &number)
            if deltas != NULL:
                (<int64_t *>deltas)[at] = number
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
            encoded_delta(self.delta) if self.deltas is None else array("q", self.deltas),
        ))


cdef object encoded_size(Py_ssize_t size):
    if size < 0:
        return _NULL
    return (<list>SHORT)[size] if size < 256 else varint(size)


cdef object encoded_delta(int64_t delta):
    return NO_DELTA if delta == 0 else b"\0" + varint(delta)


cdef object refused(bint is_closed):
    """Return the twin's error. It is imported here, because it has large tables."""
    from aioproducer.engine.delivery.records_builder import CLOSED, SHRINKS
    return ValueError(CLOSED if is_closed else SHRINKS)


FULL = MemoryRecordsBuilder(None, 0, -1)


cdef inline bint is_flat(object column) noexcept:
    """Return whether the items of `column` are consecutive in memory, and no user code returns them."""
    return PyList_CheckExact(column) or PyTuple_CheckExact(column)


def measured(column):
    """Return the bytes of all items and of the longest one.

    Returns None if `column` is no list or tuple, or if an item is not bytes. Subclasses of these are refused, too.
    """
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
