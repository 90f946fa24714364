# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False, nonecheck=False
"""The compiled encoder of Arrow columns to records of magic 2: the functions and error texts of `plain_columns`.

1. The buffers are the user's, and may change while this module reads them. It reads an offset once, compares it with the size of its
   buffer, and only then uses it. So it never reads beyond a buffer, and never writes beyond `room`.
2. The functions keep the GIL: a window of rows takes a fraction of a millisecond, and another thread that took the GIL could keep it for
   five.
"""

from cpython cimport array
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.buffer cimport PyBUF_SIMPLE, Py_buffer, PyBuffer_Release, PyObject_GetBuffer
from cpython.pyport cimport PY_SSIZE_T_MAX
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from array import array as _array

from aioproducer.records.plain_columns import BAD_OFFSETS, BAD_TIME, BadRow, Encoded
from aioproducer.records.record_batch import MOMENT, varint

__all__ = ["Moments", "Strings", "assign", "encode", "measure"]

cdef extern from *:
    """
    #ifndef SOURCE_CRC
    #define SOURCE_CRC 0U
    #endif
    """
    const uint32_t SOURCE_CRC

# CRC-32 of the sources of all compiled modules, as setup.py read them.
SOURCE = SOURCE_CRC

cdef array.array _INTS = _array("i")
cdef array.array _SHORTS = _array("H")
cdef array.array _LONGS = _array("q")
_NO_DELTA = MOMENT[0]

cdef enum:
    # Java's DefaultRecord.MAX_RECORD_OVERHEAD.
    _OVERHEAD = 21
    # The most rows of one call of `assign`, which counts groups in 16 bits.
    _MOST_ROWS = 65535

cdef enum Trouble:
    NONE
    OFFSETS
    TIME
    ORDER

cdef struct Bits:
    # NULL: no row is null
    const unsigned char* bits
    Py_ssize_t first

cdef struct Span:
    Bits rows
    const char* offsets
    const char* data
    int64_t size
    bint is_large

cdef struct Clock:
    Bits rows
    const char* data

cdef struct Work:
    Py_ssize_t count
    Py_ssize_t size
    int64_t base
    int64_t latest
    # the sizes of the first record's key and value
    int64_t key_size
    int64_t value_size
    bint keys_differ
    bint values_differ
    bint moments_differ
    Trouble trouble
    # the row that has the trouble
    Py_ssize_t row


# The content of a row

cdef inline bint _is_there(const Bits* rows, Py_ssize_t row) noexcept nogil:
    cdef Py_ssize_t at = rows.first + row
    return rows.bits == NULL or rows.bits[at >> 3] >> (at & 7) & 1


cdef inline int64_t _find(const Span* column, Py_ssize_t row, const char** begin) noexcept nogil:
    """Return the number of bytes of a row, and set `begin` to them. Returns -1 for null, and -2 if the row's offsets are wrong."""
    cdef int64_t first, last
    cdef int32_t short_first, short_last
    cdef Py_ssize_t at = column.rows.first + row
    if not _is_there(&column.rows, row):
        return -1
    if column.is_large:
        memcpy(&first, column.offsets + at * 8, 8)
        memcpy(&last, column.offsets + at * 8 + 8, 8)
    else:
        memcpy(&short_first, column.offsets + at * 4, 4)
        memcpy(&short_last, column.offsets + at * 4 + 4, 4)
        first, last = short_first, short_last
    if not 0 <= first <= last <= column.size:
        return -2
    begin[0] = column.data + first
    return last - first


cdef inline int64_t _time(const Clock* clock, Py_ssize_t row, int64_t now_ms) noexcept nogil:
    cdef int64_t moment
    if not _is_there(&clock.rows, row):
        return now_ms
    memcpy(&moment, clock.data + (clock.rows.first + row) * 8, 8)
    return moment


cdef inline int _varint_size(uint64_t rest) noexcept nogil:
    cdef int size = 1
    while rest > 0x7F:
        rest >>= 7
        size += 1
    return size


cdef inline unsigned char* _put(unsigned char* out, uint64_t rest) noexcept nogil:
    while rest > 0x7F:
        out[0] = <unsigned char> (rest & 0x7F | 0x80)
        rest >>= 7
        out += 1
    out[0] = <unsigned char> rest
    return out + 1


cdef inline uint64_t _zigzag(int64_t number) noexcept nogil:
    return (<uint64_t> number << 1) ^ <uint64_t> (number >> 63)


cdef inline int64_t _field_size(int64_t size) noexcept nogil:
    return 1 if size < 0 else _varint_size(_zigzag(size)) + size


cdef inline unsigned char* _put_field(unsigned char* out, const char* data, int64_t size) noexcept nogil:
    out = _put(out, _zigzag(size))
    if size > 0:
        memcpy(out, data, size)
        out += size
    return out


# The columns

cdef int _hold(object buffer, Py_buffer* view, str what, int bits, Py_ssize_t first, Py_ssize_t rows) except -1:
    """Get a buffer's view, and check that the buffer has `bits` bits for each row."""
    PyObject_GetBuffer(buffer, view, PyBUF_SIMPLE)
    if first < 0 or rows < 0 or first > view.len * 8 // bits or rows > view.len * 8 // bits - first:
        raise ValueError(f"{what} of {view.len} bytes do not hold rows {first} to {first + rows}")
    return 0


cdef class Strings:
    """Holds a column of bytes; its arguments and errors are those of `plain_columns.Strings`."""

    cdef Py_buffer _validity, _offsets, _data
    cdef Span span
    cdef Py_ssize_t length

    def __cinit__(self, validity, offsets, data, Py_ssize_t first, Py_ssize_t length, *, bint is_large):
        if length < 0 or length == PY_SSIZE_T_MAX:
            raise ValueError(f"a column of {length} rows")
        _hold(offsets, &self._offsets, "offsets", 64 if is_large else 32, first, length + 1)
        if data is not None:
            PyObject_GetBuffer(data, &self._data, PyBUF_SIMPLE)
        if validity is not None:
            _hold(validity, &self._validity, "validity bits", 1, first, length)
        self.span.rows.bits = <const unsigned char*> self._validity.buf
        self.span.rows.first = first
        self.span.offsets = <const char*> self._offsets.buf
        self.span.data = <const char*> self._data.buf
        self.span.size = self._data.len
        self.span.is_large = is_large
        self.length = length

    def __dealloc__(self):
        PyBuffer_Release(&self._validity)
        PyBuffer_Release(&self._offsets)
        PyBuffer_Release(&self._data)

    def __len__(self):
        return self.length

    def get(self, Py_ssize_t row):
        """Return the bytes of a row, or None for null."""
        cdef const char* data = NULL
        if not 0 <= row < self.length:
            raise IndexError(row)
        cdef int64_t size = _find(&self.span, row, &data)
        if size == -2:
            raise BadRow(row, BAD_OFFSETS)
        return None if size < 0 else data[:size]


cdef class Moments:
    """Holds a column of times; its arguments and errors are those of `plain_columns.Moments`."""

    cdef Py_buffer _validity, _data
    cdef Clock clock
    cdef Py_ssize_t length

    def __cinit__(self, validity, data, Py_ssize_t first, Py_ssize_t length):
        _hold(data, &self._data, "timestamps", 64, first, length)
        if validity is not None:
            _hold(validity, &self._validity, "validity bits", 1, first, length)
        self.clock.rows.bits = <const unsigned char*> self._validity.buf
        self.clock.rows.first = first
        self.clock.data = <const char*> self._data.buf
        self.length = length

    def __dealloc__(self):
        PyBuffer_Release(&self._validity)
        PyBuffer_Release(&self._data)

    def __len__(self):
        return self.length

    def get(self, Py_ssize_t row):
        """Return the time of a row, or None for null."""
        cdef int64_t moment
        if not 0 <= row < self.length:
            raise IndexError(row)
        if not _is_there(&self.clock.rows, row):
            return None
        moment = _time(&self.clock, row, 0)
        if moment < 0:
            raise BadRow(row, BAD_TIME)
        return moment


cdef int _check(Strings values, Strings keys, Moments moments, Py_ssize_t at, Py_ssize_t end) except -1:
    cdef Py_ssize_t least = values.length
    if keys is not None:
        least = min(least, keys.length)
    if moments is not None:
        least = min(least, moments.length)
    if not 0 <= at <= end <= values.length or least < values.length:
        raise ValueError(f"there are no rows {at} to {end}")
    return 0


cdef Py_ssize_t _end(Py_ssize_t at, Py_ssize_t rows) noexcept:
    """Return the end of `rows` rows from `at` on, or -1 if `rows` is negative or the end overflows."""
    return -1 if rows < 0 or at > PY_SSIZE_T_MAX - rows else at + rows


# Measuring

def measure(
    Strings values not None, Strings keys, Moments moments, Py_ssize_t at, Py_ssize_t rows, int64_t most, int64_t longest,
):
    """Return the number of rows that fit, and an upper bound of their bytes, as `plain_columns.measure` does."""
    _check(values, keys, moments, at, _end(at, rows))
    cdef Py_ssize_t count = 0, row
    cdef int64_t total = 0, size, key_size = -1, value_size
    cdef const char* data = NULL
    for row in range(at, at + rows):
        if keys is not None:
            key_size = _find(&keys.span, row, &data)
        value_size = _find(&values.span, row, &data)
        if key_size == -2 or value_size == -2:
            if count:
                break
            raise BadRow(row, BAD_OFFSETS)
        if moments is not None and _time(&moments.clock, row, 0) < 0:
            if count:
                break
            raise BadRow(row, BAD_TIME)
        size = _OVERHEAD + _field_size(key_size) + _field_size(value_size) + 1
        if count and (total + size > most or size > longest):
            break
        count += 1
        total += size
        if size > longest:
            break
    return count, total


# Encoding

cdef void _encode(
    const Span* values, const Span* keys, const Clock* clock, int64_t now_ms,
    const int* order, Py_ssize_t length, Py_ssize_t at, Py_ssize_t end, unsigned char* out, Py_ssize_t room, Work* work,
) noexcept nogil:
    cdef Py_ssize_t row, index = 0
    cdef int64_t key_size = -1, value_size, moment, delta, body, left = room
    cdef const char* key = NULL
    cdef const char* value = NULL
    cdef unsigned char* begin = out
    memset(work, 0, sizeof(Work))
    work.base = work.latest = now_ms
    while at < end:
        row = at if order == NULL else order[at]
        if not 0 <= row < length:
            work.trouble, work.row = ORDER, row
            break
        if keys != NULL:
            key_size = _find(keys, row, &key)
        value_size = _find(values, row, &value)
        if key_size == -2 or value_size == -2:
            work.trouble, work.row = OFFSETS, row
            break
        moment = now_ms if clock == NULL else _time(clock, row, now_ms)
        if moment < 0:
            work.trouble, work.row = TIME, row
            break
        if index == 0:
            work.base = work.latest = moment
        delta = moment - work.base
        body = 3 - 1 + _varint_size(_zigzag(delta)) + _varint_size(_zigzag(index)) + _field_size(key_size) + _field_size(value_size)
        left -= _field_size(body)
        if left < 0:
            break
        out = _put(out, _zigzag(body))
        out[0] = 0
        out = _put(out + 1, _zigzag(delta))
        out = _put(out, _zigzag(index))
        out = _put_field(out, key, key_size)
        out = _put_field(out, value, value_size)
        out[0] = 0
        out += 1
        if index == 0:
            work.key_size, work.value_size = key_size, value_size
        work.keys_differ |= key_size != work.key_size
        work.values_differ |= value_size != work.value_size
        work.moments_differ |= delta != 0
        if moment > work.latest:
            work.latest = moment
        index += 1
        at += 1
    work.count = index
    work.size = out - begin


cdef object _sizes(const Span* column, int64_t size, bint differ, const int* order, Py_ssize_t at, Py_ssize_t count):
    """Return the size of each record's key or value, or as a varint the size that all have in common."""
    cdef array.array sizes
    cdef Py_ssize_t index
    cdef const char* data = NULL
    if not differ:
        return varint(size)
    sizes = array.clone(_INTS, count, zero=False)
    for index in range(count):
        sizes.data.as_ints[index] = <int> _find(column, at + index if order == NULL else order[at + index], &data)
    return sizes


cdef object _deltas(const Clock* clock, int64_t now_ms, int64_t base, const int* order, Py_ssize_t at, Py_ssize_t count):
    cdef array.array deltas = array.clone(_LONGS, count, zero=False)
    cdef Py_ssize_t index
    cdef int64_t moment
    for index in range(count):
        moment = _time(clock, at + index if order == NULL else order[at + index], now_ms)
        # unsigned, because another thread may have changed the time since `_encode` read it, and a signed overflow is undefined
        deltas.data.as_longlongs[index] = <int64_t> (<uint64_t> moment - <uint64_t> base)
    return deltas


def encode(
    Strings values not None, Strings keys, Moments moments, int64_t now_ms,
    array.array order, Py_ssize_t at, Py_ssize_t end, Py_ssize_t room,
):
    """Encode rows as the records of a batch, as `plain_columns.encode` does."""
    cdef Work work
    cdef const int* rows = NULL
    cdef const Span* key_span = NULL
    cdef const Clock* clock = NULL
    cdef bytes payload
    if order is None:
        _check(values, keys, moments, at, end)
    else:
        _check(values, keys, moments, 0, values.length)
        if order.typecode != "i" or not 0 <= at <= end <= len(order):
            raise ValueError(f"there are no rows {at} to {end} among {len(order)}")
        rows = order.data.as_ints
    if not 0 <= room <= INT32_MAX or now_ms < 0:
        raise ValueError(f"a batch has no room of {room} bytes, or there is no time {now_ms}")
    if keys is not None:
        key_span = &keys.span
    if moments is not None:
        clock = &moments.clock
    # a new bytes object may be written to while no other code has it; the records take fewer bytes than their bound
    payload = PyBytes_FromStringAndSize(NULL, room)
    _encode(
        &values.span, key_span, clock, now_ms, rows, values.length, at, end, <unsigned char*> PyBytes_AS_STRING(payload), room, &work
    )
    if work.trouble != NONE:
        if work.trouble == ORDER:
            raise IndexError(work.row)
        raise BadRow(work.row, BAD_TIME if work.trouble == TIME else BAD_OFFSETS)
    payload = PyBytes_FromStringAndSize(PyBytes_AS_STRING(payload), work.size)
    if work.count == 0:
        return Encoded(0, b"", now_ms, now_ms, b"", b"", _NO_DELTA)
    return Encoded(
        work.count,
        payload,
        work.base,
        work.latest,
        _sizes(key_span, -1 if keys is None else work.key_size, work.keys_differ, rows, at, work.count),
        _sizes(&values.span, work.value_size, work.values_differ, rows, at, work.count),
        _deltas(clock, now_ms, work.base, rows, at, work.count) if work.moments_differ else _NO_DELTA,
    )


# Partitions

cdef inline uint32_t _word(const unsigned char* data) noexcept nogil:
    return data[0] | <uint32_t> data[1] << 8 | <uint32_t> data[2] << 16 | <uint32_t> data[3] << 24


cdef uint32_t _murmur2(const unsigned char* data, int64_t size) noexcept nogil:
    cdef uint32_t hashed = <uint32_t> 0x9747B28C ^ <uint32_t> size, word
    cdef uint32_t factor = <uint32_t> 0x5BD1E995
    while size >= 4:
        word = _word(data) * factor
        hashed = hashed * factor ^ (word ^ word >> 24) * factor
        data += 4
        size -= 4
    if size == 3:
        hashed ^= <uint32_t> data[2] << 16
    if size >= 2:
        hashed ^= <uint32_t> data[1] << 8
    if size >= 1:
        hashed = (hashed ^ data[0]) * factor
    hashed = (hashed ^ hashed >> 13) * factor
    return hashed ^ hashed >> 15


def assign(Strings keys not None, Py_ssize_t at, Py_ssize_t rows, Py_ssize_t partitions, Py_ssize_t nobodys=-1):
    """Group rows by the partitions of their keys, as `core.key_grouping.plain_assign` does."""
    cdef Py_ssize_t index, groups = 0, place
    cdef int64_t size
    cdef const char* data = NULL
    # 1 + the group's number by partition, and after the partitions that of null keys; 0: no group yet
    cdef int* numbers
    cdef array.array picks, order
    if not (0 <= rows <= _MOST_ROWS and 1 <= partitions < INT32_MAX and -1 <= nobodys < partitions and 0 <= at <= keys.length - rows):
        raise ValueError(f"{rows} rows for {partitions} partitions")
    picks = array.clone(_SHORTS, rows, zero=False)
    order = array.clone(_INTS, rows, zero=False)
    parts = []
    counts = array.clone(_INTS, rows + 1, zero=True)
    # for each group, the number of its rows, and later the end of its rows in `order` so far
    cdef int* behind = (<array.array> counts).data.as_ints
    numbers = <int*> calloc(partitions + 1, sizeof(int))
    if numbers == NULL:
        raise MemoryError
    try:
        for index in range(rows):
            size = _find(&keys.span, at + index, &data)
            if size == -2:
                raise BadRow(at + index, BAD_OFFSETS)
            if size < 0:
                place = partitions if nobodys < 0 else nobodys
            else:
                place = <Py_ssize_t> ((_murmur2(<const unsigned char*> data, size) & 0x7FFFFFFF) % <uint32_t> partitions)
            if numbers[place] == 0:
                groups += 1
                numbers[place] = <int> groups
                parts.append(-1 if place == partitions else place)
            picks.data.as_ushorts[index] = <unsigned short> (numbers[place] - 1)
            behind[numbers[place] - 1] += 1
    finally:
        free(numbers)
    place = 0
    for index in range(groups):
        size = behind[index]
        behind[index] = <int> place
        place += size
    for index in range(rows):
        place = behind[picks.data.as_ushorts[index]]
        order.data.as_ints[place] = <int> (at + index)
        behind[picks.data.as_ushorts[index]] += 1
    return picks, parts, order, [behind[index] for index in range(groups)]
