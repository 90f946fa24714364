# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False, nonecheck=False
"""The compiled encoder of Arrow columns to records of magic 2: the functions and error texts of `plain_columns`. And CRC-32C.

1. The buffers are the user's, and may change while this module reads them. It reads an offset once, compares it with the size of its
   buffer, and only then uses it. So it never reads beyond a buffer, and never writes beyond `room`.
2. The functions keep the GIL: a window of rows takes a fraction of a millisecond, and another thread that took the GIL could keep it for
   five.
"""

from cpython cimport array
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.buffer cimport PyBUF_SIMPLE, Py_buffer, PyBuffer_Release, PyObject_GetBuffer
from cpython.pyport cimport PY_SSIZE_T_MAX
from libc.stdint cimport INT32_MAX, int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free

from array import array as _array

from aioproducer.records.encoded_rows import BAD_OFFSETS, BAD_TIME, NO_HEADER, NO_NAME, NO_TEXT, BadRow, Encoded, bad_partition
from aioproducer.records.varints import NO_DELTA as _NO_DELTA, varint

__all__ = ["Headers", "Moments", "Partitions", "Strings", "assign", "crc32c", "crc32c_by_table", "encode", "hash_rows", "known", "measure"]

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
_TROUBLES = {OFFSETS: BAD_OFFSETS, TIME: BAD_TIME, NULL_HEADER: NO_HEADER, NULL_NAME: NO_NAME}

# The columns

cdef object _bad(Py_ssize_t row, Trouble trouble):
    return BadRow(row, _TROUBLES[trouble])


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


cdef class Partitions:
    """Holds a column of partitions; its arguments and errors are those of `plain_columns.Partitions`."""

    cdef Py_buffer _validity, _data
    cdef Clock numbers
    cdef Py_ssize_t length

    def __cinit__(self, validity, data, Py_ssize_t first, Py_ssize_t length, *, bint is_large):
        _hold(data, &self._data, "partitions", 64 if is_large else 32, first, length)
        if validity is not None:
            _hold(validity, &self._validity, "validity bits", 1, first, length)
        self.numbers.rows.bits = <const unsigned char*> self._validity.buf
        self.numbers.rows.first = first
        self.numbers.data = <const char*> self._data.buf
        self.numbers.is_short = not is_large
        self.length = length

    def __dealloc__(self):
        PyBuffer_Release(&self._validity)
        PyBuffer_Release(&self._data)

    def __len__(self):
        return self.length

    def get(self, Py_ssize_t row):
        """Return the partition of a row, or None for null."""
        if not 0 <= row < self.length:
            raise IndexError(row)
        if not _is_there(&self.numbers.rows, row):
            return None
        return self.of(row)

    cdef int64_t of(self, Py_ssize_t row) except -2:
        """Return the partition of a row, or -1 for null."""
        cdef int64_t number = _number(&self.numbers, row, -1)
        if number < 0 and _is_there(&self.numbers.rows, row):
            raise BadRow(row, bad_partition(number))
        return number


cdef class Headers:
    """Holds a column of lists of headers; its arguments and errors are those of `plain_columns.Headers`."""

    cdef Py_buffer _validity, _offsets, _pairs
    cdef Lists lists
    cdef Strings _names, _values
    cdef Py_ssize_t length

    def __cinit__(
        self, validity, offsets, Py_ssize_t first, Py_ssize_t length, pairs, Strings names not None,
        Strings values not None, *, bint is_large,
    ):
        if length < 0 or length == PY_SSIZE_T_MAX or names.length != values.length:
            raise ValueError(f"a column of {length} rows, and headers of {names.length} names and {values.length} values")
        _hold(offsets, &self._offsets, "offsets", 64 if is_large else 32, first, length + 1)
        if validity is not None:
            _hold(validity, &self._validity, "validity bits", 1, first, length)
        if pairs is not None:
            bits, self.lists.headers.first = pairs
            _hold(bits, &self._pairs, "validity bits", 1, self.lists.headers.first, names.length)
        self.lists.rows.rows.bits = <const unsigned char*> self._validity.buf
        self.lists.rows.rows.first = first
        self.lists.rows.offsets = <const char*> self._offsets.buf
        self.lists.rows.size = names.length
        self.lists.rows.is_large = is_large
        self.lists.headers.bits = <const unsigned char*> self._pairs.buf
        self.lists.names = names.span
        self.lists.values = values.span
        self._names = names
        self._values = values
        self.length = length

    def __dealloc__(self):
        PyBuffer_Release(&self._validity)
        PyBuffer_Release(&self._offsets)
        PyBuffer_Release(&self._pairs)

    def __len__(self):
        return self.length

    def get(self, Py_ssize_t row):
        """Return the headers of a row as pairs, or None for null."""
        if not 0 <= row < self.length:
            raise IndexError(row)
        cdef int64_t first = 0, index
        cdef int64_t count = _range(&self.lists.rows, row, &first)
        if count == -1:
            return None
        self.size_of(row)
        try:
            return [(self._names.get(index).decode(), self._values.get(index)) for index in range(first, first + count)]
        except BadRow as error:
            raise BadRow(row, error.what) from None

    cdef int64_t size_of(self, Py_ssize_t row) except -1:
        """Return the bytes of a row's headers with their number, after a check of the headers."""
        cdef int64_t first = 0, index, count, size
        cdef bint has_other_names = False
        cdef const char* data = NULL
        cdef int64_t total = _headers_size(&self.lists, row, &has_other_names)
        if total < 0:
            raise _bad(row, <Trouble> -total)
        if not has_other_names:
            return total
        count = _range(&self.lists.rows, row, &first)
        for index in range(first, first + count):
            size = _find(&self.lists.names, index, &data)
            try:
                data[:max(size, 0)].decode("utf-8")
            except UnicodeDecodeError:
                raise BadRow(row, NO_TEXT) from None
        return total


cdef int _check(Strings values, Strings keys, Moments moments, Headers headers, Py_ssize_t at, Py_ssize_t end) except -1:
    cdef Py_ssize_t least = values.length
    if keys is not None:
        least = min(least, keys.length)
    if moments is not None:
        least = min(least, moments.length)
    if headers is not None:
        least = min(least, headers.length)
    if not 0 <= at <= end <= values.length or least < values.length:
        raise ValueError(f"there are no rows {at} to {end}")
    return 0


cdef Py_ssize_t _end(Py_ssize_t at, Py_ssize_t rows) noexcept:
    """Return the end of `rows` rows from `at` on, or -1 if `rows` is negative or the end overflows."""
    return -1 if rows < 0 or at > PY_SSIZE_T_MAX - rows else at + rows


# Measuring

def measure(
    Strings values not None, Strings keys, Moments moments, Py_ssize_t at, Py_ssize_t rows, int64_t most, int64_t longest,
    Headers headers=None,
):
    """Return the number of rows that fit, and an upper bound of their bytes, as `plain_columns.measure` does."""
    _check(values, keys, moments, headers, at, _end(at, rows))
    cdef Py_ssize_t count = 0, row
    cdef int64_t total = 0, size, key_size = -1, value_size, headers_size = 1
    cdef bint has_other_names
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
        if headers is not None:
            has_other_names = False
            headers_size = _headers_size(&headers.lists, row, &has_other_names)
            # Not for each row: the try statement takes longer than the rest.
            if headers_size < 0 or has_other_names:
                try:
                    headers_size = headers.size_of(row)
                except BadRow:
                    if count:
                        break
                    raise
        size = _OVERHEAD + _field_size(key_size) + _field_size(value_size) + headers_size
        if count and (total + size > most or size > longest):
            break
        count += 1
        total += size
        if size > longest:
            break
    return count, total


# Encoding

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
    array.array order, Py_ssize_t at, Py_ssize_t end, Py_ssize_t room, Headers headers=None,
):
    """Encode rows as the records of a batch, as `plain_columns.encode` does."""
    cdef Work work
    cdef const int* rows = NULL
    cdef const Span* key_span = NULL
    cdef const Clock* clock = NULL
    cdef const Lists* lists = NULL
    cdef bytes payload
    if order is None:
        _check(values, keys, moments, headers, at, end)
    else:
        _check(values, keys, moments, headers, 0, values.length)
        if order.typecode != "i" or not 0 <= at <= end <= len(order):
            raise ValueError(f"there are no rows {at} to {end} among {len(order)}")
        rows = order.data.as_ints
    if not 0 <= room <= INT32_MAX or now_ms < 0:
        raise ValueError(f"a batch has no room of {room} bytes, or there is no time {now_ms}")
    if keys is not None:
        key_span = &keys.span
    if moments is not None:
        clock = &moments.clock
    if headers is not None:
        lists = &headers.lists
    # A new bytes object may be written to while no other code has it. The records take fewer bytes than their bound.
    payload = PyBytes_FromStringAndSize(NULL, room)
    _encode(
        &values.span, key_span, clock, lists, now_ms, rows, values.length, at, end, <unsigned char*> PyBytes_AS_STRING(payload), room, &work
    )
    if work.trouble != NONE:
        raise IndexError(work.row) if work.trouble == ORDER else _bad(work.row, work.trouble)
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

def known(Partitions column not None, Py_ssize_t at, Py_ssize_t rows, int64_t partitions):
    """Return the number of rows whose partitions exist, and the highest one, as `plain_columns.known` does."""
    cdef Py_ssize_t index
    cdef int64_t highest = -1, number
    if not (0 <= rows and 0 <= at <= column.length - rows):
        raise ValueError(f"there are no rows {at} to {at + rows}")
    for index in range(rows):
        try:
            number = column.of(at + index)
        except BadRow:
            if index:
                return index, highest
            raise
        if number >= partitions:
            return max(index, 1), highest if index else number
        highest = max(highest, number)
    return rows, highest


def assign(
    Strings keys, Py_ssize_t at, Py_ssize_t rows, Py_ssize_t partitions, Py_ssize_t nobodys=-1, Partitions column=None,
):
    """Group rows by their partitions or those of their keys, as `core.key_grouping.plain_assign` does."""
    cdef Py_ssize_t index, groups = 0, place, length = PY_SSIZE_T_MAX
    cdef int64_t size, number = -1
    cdef const char* data = NULL
    # 1 + the group's number by partition, and after the partitions that of null keys; 0: no group yet
    cdef int* numbers
    cdef array.array picks, order
    if keys is not None:
        length = keys.length
    if column is not None:
        length = min(length, column.length)
    if not (0 <= rows <= _MOST_ROWS and 1 <= partitions < INT32_MAX and -1 <= nobodys < partitions and 0 <= at <= length - rows):
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
            if column is not None:
                number = column.of(at + index)
            size = -1 if keys is None or number >= 0 else _find(&keys.span, at + index, &data)
            if size == -2:
                raise _bad(at + index, OFFSETS)
            if number >= partitions:
                raise BadRow(at + index, bad_partition(number))
            if number >= 0:
                place = <Py_ssize_t> number
            elif size < 0:
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


# The checksum

def hash_rows(
    Strings values not None, Strings keys, Moments moments, Headers headers, Partitions partitions, int64_t moment,
    Py_ssize_t at, Py_ssize_t rows,
):
    """Return the sum of the hashes of rows, as `row_hash.hash_rows` does."""
    _check(values, keys, moments, headers, at, _end(at, rows))
    if partitions is not None and partitions.length < at + rows:
        raise ValueError(f"there are no rows {at} to {at + rows}")
    cdef Py_ssize_t row
    cdef int64_t key_size = -1, value_size, time, first = 0, index, count
    cdef const char* data = NULL
    cdef const char* key = NULL
    cdef Hash hashed
    cdef uint64_t total = 0
    for row in range(at, at + rows):
        hashed.next, hashed.last = 0, <uint64_t> 0x9E3779B185EBCA87
        value_size = _find(&values.span, row, &data)
        if keys is not None:
            key_size = _find(&keys.span, row, &key)
        if key_size == -2 or value_size == -2:
            raise _bad(row, OFFSETS)
        _add_bytes(&hashed, data, value_size)
        _add_bytes(&hashed, key, key_size)
        if headers is not None and headers.size_of(row) > 1:
            count = _range(&headers.lists.rows, row, &first)
            _add_word(&hashed, <uint64_t> count << 2 | 1)
            for index in range(first, first + count):
                count = _find(&headers.lists.names, index, &data)
                _add_bytes(&hashed, data, count)
                count = _find(&headers.lists.values, index, &data)
                _add_bytes(&hashed, data, count)
        time = moment if moments is None else _time(&moments.clock, row, -1)
        if time >= 0:
            _add_word(&hashed, 2)
            _add_word(&hashed, <uint64_t> time)
        elif moments is not None and _is_there(&moments.clock.rows, row):
            raise _bad(row, TIME)
        time = -1 if partitions is None else partitions.of(row)
        if time >= 0:
            _add_word(&hashed, 3)
            _add_word(&hashed, <uint64_t> time)
        total += _mix(_mix(hashed.next) + hashed.last)
    return total


# CRC-32C

_make_crcs()
cdef bint _HAS_CRC = has_crc_instruction()
if _HAS_CRC:
    make_crcs_behind()


cdef uint32_t _crc(object data, uint32_t value, bint by_table) except? 0:
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    value = ~value
    value = (_crc_by_table if by_table else crc_by_instruction)(value, <const unsigned char *> view.buf, view.len)
    PyBuffer_Release(&view)
    return ~value


def crc32c(data, uint32_t value=0):
    """Return the CRC-32C of bytes behind others whose CRC is `value`."""
    return _crc(data, value, not _HAS_CRC)


def crc32c_by_table(data, uint32_t value=0):
    """Return the same for processors that have no instruction for it."""
    return _crc(data, value, True)
