# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False, nonecheck=False
"""The compiled encoder of Arrow columns to records of magic 2: the functions and error texts of `plain_columns`. And CRC-32C.

1. The buffers are the user's, and may change while this module reads them. It compares an offset with the size of its buffer each time it
   has read it, and only then uses it. So it never reads beyond a buffer. It writes a record only while it has the size that was planned.
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

from aioproducer.records.encoded_rows import BAD_OFFSETS, BAD_TIME, CHANGED, NO_HEADER, NO_NAME, NO_TEXT, BadRow, Encoded, bad_partition
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
_TROUBLES = {OFFSETS: BAD_OFFSETS, TIME: BAD_TIME, NULL_HEADER: NO_HEADER, NULL_NAME: NO_NAME, OTHER_SIZE: CHANGED}

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

cdef object _encoded(Batch* batch):
    """Return a planned batch whose records are still to be written: `batch` gets the places of its bytes and numbers."""
    cdef array.array sizes
    # A new bytes object may be written to while no other code has it.
    cdef bytes payload = PyBytes_FromStringAndSize(NULL, batch.size)
    batch.out = <unsigned char*> PyBytes_AS_STRING(payload)
    batch.most = batch.out + batch.size
    key_sizes, value_sizes, moments = None, None, _NO_DELTA
    if batch.keys_differ:
        key_sizes = sizes = array.clone(_INTS, batch.count, zero=False)
        batch.key_sizes = sizes.data.as_ints
    if batch.values_differ:
        value_sizes = sizes = array.clone(_INTS, batch.count, zero=False)
        batch.value_sizes = sizes.data.as_ints
    if batch.moments_differ:
        moments = sizes = array.clone(_LONGS, batch.count, zero=False)
        batch.deltas = <int64_t*> sizes.data.as_longlongs
    # A size that all records have is a varint.
    if key_sizes is None:
        key_sizes = varint(batch.key_size)
    if value_sizes is None:
        value_sizes = varint(batch.value_size)
    return Encoded(batch.count, payload, batch.base, batch.latest, key_sizes, value_sizes, moments)


def encode(
    Strings values not None, Strings keys, Moments moments, int64_t now_ms, Py_ssize_t at, Py_ssize_t rows,
    array.array picks, Py_ssize_t groups, int64_t room, int64_t most, Headers headers=None,
):
    """Encode rows as batches of each group, as `plain_columns.encode` does."""
    cdef Window window
    cdef Py_ssize_t index, most_batches
    _check(values, keys, moments, headers, at, _end(at, rows))
    if not 1 <= groups <= _MOST_ROWS or (picks is not None and (picks.typecode != "H" or len(picks) != rows)):
        raise ValueError(f"{rows} rows are not in {groups} groups")
    if not (0 <= room <= INT32_MAX and 0 <= most <= INT32_MAX) or now_ms < 0:
        raise ValueError(f"a batch has no room of {room} bytes, or there is no time {now_ms}")
    memset(&window, 0, sizeof(Window))
    window.values = &values.span
    window.keys = &keys.span if keys is not None else NULL
    window.clock = &moments.clock if moments is not None else NULL
    window.lists = &headers.lists if headers is not None else NULL
    window.picks = picks.data.as_ushorts if picks is not None else NULL
    window.now_ms, window.at, window.rows, window.groups, window.room, window.most = now_ms, at, rows, groups, room, most
    # Two batches in a row of one group have more bytes than `room`.
    most_batches = min(rows, groups + <Py_ssize_t> (2 * most // max(room, 1)))
    made = [[] for _group in range(groups)]
    try:
        window.batches = <Batch*> calloc(most_batches + 1, sizeof(Batch))
        window.records = <Record*> calloc(rows + 1, sizeof(Record))
        window.open = <int*> calloc(groups, sizeof(int))
        if window.batches == NULL or window.records == NULL or window.open == NULL:
            raise MemoryError
        _plan(&window)
        if window.trouble == NONE:
            for index in range(1, window.count + 1):
                made[window.batches[index].group].append(_encoded(&window.batches[index]))
            _write(&window)
        if window.trouble != NONE:
            raise IndexError(window.row) if window.trouble == GROUP else _bad(window.row, window.trouble)
    finally:
        free(window.batches)
        free(window.records)
        free(window.open)
    return made


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
    cdef array.array picks
    if keys is not None:
        length = keys.length
    if column is not None:
        length = min(length, column.length)
    if not (0 <= rows <= _MOST_ROWS and 1 <= partitions < INT32_MAX and -1 <= nobodys < partitions and 0 <= at <= length - rows):
        raise ValueError(f"{rows} rows for {partitions} partitions")
    picks = array.clone(_SHORTS, rows, zero=False)
    parts = []
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
    finally:
        free(numbers)
    return picks, parts


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

# For each byte of eight, what it does to the checksum ("slicing by 8").
cdef uint32_t[8][256] _CRCS


cdef inline void _make_crcs() noexcept nogil:
    cdef uint32_t crc
    cdef int byte, place, _bit
    for byte in range(256):
        crc = byte
        for _bit in range(8):
            crc = crc >> 1 ^ (<uint32_t> 0x82F63B78 if crc & 1 else 0)
        _CRCS[0][byte] = crc
    for place in range(1, 8):
        for byte in range(256):
            crc = _CRCS[place - 1][byte]
            _CRCS[place][byte] = crc >> 8 ^ _CRCS[0][crc & 0xFF]


cdef inline uint32_t _crc_by_table(uint32_t crc, const unsigned char* at, size_t size) noexcept nogil:
    while size >= 8:
        crc ^= at[0] | <uint32_t> at[1] << 8 | <uint32_t> at[2] << 16 | <uint32_t> at[3] << 24
        crc = (
            _CRCS[7][crc & 0xFF] ^ _CRCS[6][crc >> 8 & 0xFF] ^ _CRCS[5][crc >> 16 & 0xFF] ^ _CRCS[4][crc >> 24]
            ^ _CRCS[3][at[4]] ^ _CRCS[2][at[5]] ^ _CRCS[1][at[6]] ^ _CRCS[0][at[7]]
        )
        at += 8
        size -= 8
    while size:
        crc = crc >> 8 ^ _CRCS[0][(crc ^ at[0]) & 0xFF]
        at += 1
        size -= 1
    return crc


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
