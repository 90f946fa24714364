# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False, nonecheck=False
"""The encoder of Arrow columns to records of magic 2, which only the compiled build has. And CRC-32C.

1. The buffers are the user's, and may change while this module reads them. It compares an offset with the size of its buffer each time it
   has read it, and only then uses it. So it never reads beyond a buffer. It writes a record only while it has the size that was planned.
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

from aioproducer.records.encoded_rows import BAD_OFFSETS, BAD_TIME, CHANGED, NO_HEADER, NO_NAME, NO_TEXT, BadRow, Encoded, bad_partition
from aioproducer.records.varints import NO_DELTA as _NO_DELTA, varint

cdef extern from *:
    """
    #ifndef SOURCE_CRC
    #define SOURCE_CRC 0U
    #endif
    """
    const uint32_t SOURCE_CRC

# CRC-32 of the sources of all compiled modules, as setup.py read them.
SOURCE = SOURCE_CRC

# The layouts

cdef enum:
    # Java's DefaultRecord.MAX_RECORD_OVERHEAD.
    _OVERHEAD = 21
    # The most rows of one call of `assign`, which counts groups in 16 bits.
    _MOST_ROWS = 65535

cdef enum Trouble:
    NONE
    OFFSETS
    TIME
    GROUP
    NULL_HEADER
    NULL_NAME
    OTHER_SIZE

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

# The headers of rows: which of all headers are a row's, and all headers.
cdef struct Lists:
    Span rows
    Bits headers
    Span names
    Span values

cdef struct Clock:
    Bits rows
    const char* data
    # of 32-bit numbers; times have 64 bits
    bint is_short

# A batch of a window: its size is known before its records are written.
cdef struct Batch:
    Py_ssize_t group
    Py_ssize_t count
    int64_t size
    int64_t base
    int64_t latest
    # the sizes of the first record's key and value
    int64_t key_size
    int64_t value_size
    bint keys_differ
    bint values_differ
    bint moments_differ
    # the records that are written, the place of the next one, and the end of all
    Py_ssize_t written
    unsigned char* out
    const unsigned char* most
    # for each record; NULL: all have the first one's size, or time
    int* key_sizes
    int* value_sizes
    int64_t* deltas

cdef struct Record:
    int batch
    # the bytes behind its length
    int body

cdef struct Window:
    const Span* values
    const Span* keys
    const Clock* clock
    const Lists* lists
    int64_t now_ms
    Py_ssize_t at
    Py_ssize_t rows
    # the group of each row; NULL: there is one group
    const unsigned short* picks
    Py_ssize_t groups
    # the most bytes of a batch of several records, and of all batches
    int64_t room
    int64_t most
    # from 1 on
    Batch* batches
    Py_ssize_t count
    Record* records
    # the last batch of each group; 0: none yet
    int* open
    Trouble trouble
    # the row that has the trouble
    Py_ssize_t row

# The words of a row that are hashed so far: they go to two lanes in turn, first to the one that the last word did not go to.
cdef struct Hash:
    uint64_t next
    uint64_t last


# The content of a row

cdef inline bint _is_there(const Bits* rows, Py_ssize_t row) noexcept nogil:
    cdef Py_ssize_t at = rows.first + row
    return rows.bits == NULL or rows.bits[at >> 3] >> (at & 7) & 1


cdef inline int64_t _range(const Span* column, Py_ssize_t row, int64_t* begin) noexcept nogil:
    """Return the number of a row's bytes or headers, and set `begin` to the first one. Return -1 for null, and -2 for wrong offsets."""
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
    begin[0] = first
    return last - first


cdef inline int64_t _find(const Span* column, Py_ssize_t row, const char** begin) noexcept nogil:
    """Return the number of bytes of a row, and set `begin` to them. Returns -1 for null, and -2 if the row's offsets are wrong."""
    cdef int64_t first = 0
    cdef int64_t size = _range(column, row, &first)
    if size >= 0:
        begin[0] = column.data + first
    return size


cdef inline int64_t _number(const Clock* clock, Py_ssize_t row, int64_t default) noexcept nogil:
    """Return the number of a row, and `default` for null."""
    cdef int64_t number
    cdef int32_t short_number
    if not _is_there(&clock.rows, row):
        return default
    if clock.is_short:
        memcpy(&short_number, clock.data + (clock.rows.first + row) * 4, 4)
        return short_number
    memcpy(&number, clock.data + (clock.rows.first + row) * 8, 8)
    return number


cdef inline int64_t _time(const Clock* clock, Py_ssize_t row, int64_t now_ms) noexcept nogil:
    cdef int64_t moment
    if not _is_there(&clock.rows, row):
        return now_ms
    memcpy(&moment, clock.data + (clock.rows.first + row) * 8, 8)
    return moment


# Its parts in a record

cdef inline uint32_t _word(const unsigned char* data) noexcept nogil:
    return data[0] | <uint32_t> data[1] << 8 | <uint32_t> data[2] << 16 | <uint32_t> data[3] << 24


cdef inline uint64_t _long_word(const unsigned char* data) noexcept nogil:
    return _word(data) | <uint64_t> _word(data + 4) << 32


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


cdef inline unsigned char* _put_field(
    unsigned char* out, const unsigned char* most, const Span* column, const char* data, int64_t size,
) noexcept nogil:
    """Write the size and the bytes of a field of `column`. The bytes behind it are undefined then, up to `most` where the room ends."""
    out = _put(out, _zigzag(size))
    # Sixteen bytes are two instructions. A memcpy of a few bytes is a call, and a branch on their number that is often foreseen wrongly.
    if 0 <= size <= 16 and column.data + column.size - data >= 16 and most - out >= 16:
        memcpy(out, data, 16)
        out += size
    elif size > 0:
        memcpy(out, data, size)
        out += size
    return out


cdef inline bint _is_ascii(const char* content, int64_t size) noexcept nogil:
    """Return whether no byte has its highest bit. The last word overlaps the one before it."""
    cdef const unsigned char* data = <const unsigned char*> content
    cdef uint64_t all_bits = 0
    cdef int64_t at
    if size >= 8:
        for at in range(0, size - 8, 8):
            all_bits |= _long_word(data + at)
        all_bits |= _long_word(data + size - 8)
    elif size >= 4:
        all_bits = _word(data) | _word(data + size - 4)
    elif size > 0:
        all_bits = data[0] | data[size >> 1] | data[size - 1]
    return not all_bits & <uint64_t> 0x8080808080808080


cdef inline int64_t _headers_size(const Lists* lists, Py_ssize_t row, bint* has_other_names) noexcept nogil:
    """Return the bytes of a row's headers with their number, or the row's trouble as a negative number.

    It sets `has_other_names`, unless that is NULL, if a name is no ASCII and so may be no text.
    """
    cdef int64_t first = 0, count, at, size, total
    cdef const char* data = NULL
    if lists == NULL:
        return 1
    count = _range(&lists.rows, row, &first)
    if count <= 0:
        return 1 if count > -2 else -<int64_t> OFFSETS
    total = _varint_size(_zigzag(count))
    for at in range(first, first + count):
        if not _is_there(&lists.headers, at):
            return -<int64_t> NULL_HEADER
        size = _find(&lists.names, at, &data)
        if size < 0:
            return -<int64_t> (NULL_NAME if size == -1 else OFFSETS)
        if has_other_names != NULL and not _is_ascii(data, size):
            has_other_names[0] = True
        total += _field_size(size)
        size = _find(&lists.values, at, &data)
        if size == -2:
            return -<int64_t> OFFSETS
        total += _field_size(size)
        # more than any batch holds: the sum must not overflow
        if total > INT32_MAX:
            break
    return total


cdef inline unsigned char* _put_headers(
    unsigned char* out, const unsigned char* most, const Lists* lists, Py_ssize_t row, int64_t left,
) noexcept nogil:
    """Write the headers of a row that has some; they took `left` bytes. Returns NULL if another thread has changed them since then."""
    cdef int64_t first = 0, count, at, name_size, value_size
    cdef const char* name = NULL
    cdef const char* value = NULL
    count = _range(&lists.rows, row, &first)
    left -= _varint_size(_zigzag(count))
    if count <= 0 or left < 0:
        return NULL
    out = _put(out, _zigzag(count))
    for at in range(first, first + count):
        name_size = _find(&lists.names, at, &name)
        value_size = _find(&lists.values, at, &value)
        if name_size < 0 or value_size == -2:
            return NULL
        left -= _field_size(name_size) + _field_size(value_size)
        if left < 0:
            return NULL
        out = _put_field(out, most, &lists.names, name, name_size)
        out = _put_field(out, most, &lists.values, value, value_size)
    return out if left == 0 else NULL


cdef inline int64_t _body(const Batch* batch, int64_t index, int64_t moment, int64_t fields) noexcept nogil:
    """Return the bytes of a record behind its length, of which `fields` are its key, its value and its headers."""
    return 1 + _varint_size(_zigzag(<int64_t> (<uint64_t> moment - <uint64_t> batch.base))) + _varint_size(_zigzag(index)) + fields


cdef inline void _plan(Window* window) noexcept nogil:
    """Find the batch and the size of each record, and what is common to the records of a batch."""
    cdef Py_ssize_t index, row, group = 0
    cdef int64_t key_size = -1, value_size, headers_size, moment = window.now_ms, fields, body, total = 0, begin = 0
    cdef bint is_first
    cdef Batch* batch
    for index in range(window.rows):
        row = window.row = window.at + index
        if window.picks != NULL:
            group = window.picks[index]
        if group >= window.groups:
            window.trouble = GROUP
            return
        if window.keys != NULL:
            key_size = _range(window.keys, row, &begin)
        value_size = _range(window.values, row, &begin)
        if key_size == -2 or value_size == -2:
            window.trouble = OFFSETS
            return
        if window.clock != NULL:
            moment = _time(window.clock, row, window.now_ms)
        if moment < 0:
            window.trouble = TIME
            return
        headers_size = _headers_size(window.lists, row, NULL)
        if headers_size < 0:
            window.trouble = <Trouble> -headers_size
            return
        fields = _field_size(key_size) + _field_size(value_size) + headers_size
        batch = &window.batches[window.open[group]]
        body = _body(batch, batch.count, moment, fields)
        # A record that is larger than a batch gets a batch of its own.
        is_first = window.open[group] == 0 or batch.size + _field_size(body) > window.room
        if is_first:
            body = 3 + fields
        total += _field_size(body)
        if total > window.most:
            window.trouble = OTHER_SIZE
            return
        if is_first:
            window.count += 1
            window.open[group] = <int> window.count
            batch = &window.batches[window.count]
            batch.group = group
            batch.base = batch.latest = moment
            batch.key_size, batch.value_size = key_size, value_size
        window.records[index].batch = window.open[group]
        window.records[index].body = <int> body
        batch.count += 1
        batch.size += _field_size(body)
        batch.keys_differ |= key_size != batch.key_size
        batch.values_differ |= value_size != batch.value_size
        batch.moments_differ |= moment != batch.base
        if moment > batch.latest:
            batch.latest = moment


cdef inline void _write(Window* window) noexcept nogil:
    """Write the records in the order of the rows, each to its batch, so that the columns are read from their begin to their end.

    Another thread may have changed the columns since `_plan`: a record that no longer has its size is not written.
    """
    cdef Py_ssize_t index, row
    cdef int64_t key_size = -1, value_size, headers_size, moment = window.now_ms, body
    cdef const char* key = NULL
    cdef const char* value = NULL
    cdef unsigned char* out
    cdef Batch* batch
    for index in range(window.rows):
        row = window.row = window.at + index
        batch = &window.batches[window.records[index].batch]
        body = window.records[index].body
        if window.keys != NULL:
            key_size = _find(window.keys, row, &key)
        value_size = _find(window.values, row, &value)
        if window.clock != NULL:
            moment = _time(window.clock, row, window.now_ms)
        headers_size = body - _body(batch, batch.written, moment, _field_size(key_size) + _field_size(value_size))
        if key_size == -2 or value_size == -2 or headers_size < 1 or (headers_size > 1 and window.lists == NULL):
            window.trouble = OTHER_SIZE
            return
        out = _put(batch.out, _zigzag(body))
        out[0] = 0
        out = _put(out + 1, _zigzag(<int64_t> (<uint64_t> moment - <uint64_t> batch.base)))
        out = _put(out, _zigzag(batch.written))
        out = _put_field(out, batch.most, window.keys, key, key_size)
        out = _put_field(out, batch.most, window.values, value, value_size)
        if headers_size > 1:
            out = _put_headers(out, batch.most, window.lists, row, headers_size)
            if out == NULL:
                window.trouble = OTHER_SIZE
                return
        else:
            out[0] = 0
            out += 1
        if batch.key_sizes != NULL:
            batch.key_sizes[batch.written] = <int> key_size
        if batch.value_sizes != NULL:
            batch.value_sizes[batch.written] = <int> value_size
        if batch.deltas != NULL:
            batch.deltas[batch.written] = <int64_t> (<uint64_t> moment - <uint64_t> batch.base)
        batch.out = out
        batch.written += 1


# Its hashes

cdef inline uint32_t _murmur2(const unsigned char* data, int64_t size) noexcept nogil:
    cdef inline uint32_t hashed = <uint32_t> 0x9747B28C ^ <uint32_t> size, word
    cdef inline uint32_t factor = <uint32_t> 0x5BD1E995
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


cdef inline uint64_t _mix(uint64_t word) noexcept nogil:
    """Return the word with each of its bits spread over all bits: the finalizer of SplitMix64."""
    word = (word ^ word >> 30) * <uint64_t> 0xBF58476D1CE4E5B9
    word = (word ^ word >> 27) * <uint64_t> 0x94D049BB133111EB
    return word ^ word >> 31


cdef inline uint64_t _round(uint64_t lane, uint64_t word) noexcept nogil:
    """Return the lane after a word: XXH64's round."""
    lane += word * <uint64_t> 0xC2B2AE3D27D4EB4F
    return (lane << 31 | lane >> 33) * <uint64_t> 0x9E3779B185EBCA87


cdef inline void _add_word(Hash* hashed, uint64_t word) noexcept nogil:
    hashed.next, hashed.last = hashed.last, _round(hashed.next, word)


cdef inline void _add_bytes(Hash* given, const char* content, int64_t size) noexcept nogil:
    """Add the size of a field, 0 for null and else one more, and its bytes as words. The last word overlaps the one before it."""
    cdef const unsigned char* data = <const unsigned char*> content
    cdef int64_t left = size
    # a copy, which the compiler keeps in registers
    cdef Hash hashed = given[0]
    _add_word(&hashed, <uint64_t> (size + 1))
    if size >= 8:
        while left >= 16:
            hashed.next = _round(hashed.next, _long_word(data))
            hashed.last = _round(hashed.last, _long_word(data + 8))
            data += 16
            left -= 16
        if left >= 8:
            _add_word(&hashed, _long_word(data))
            data += 8
            left -= 8
        if left:
            _add_word(&hashed, _long_word(data + left - 8))
    elif size >= 4:
        _add_word(&hashed, _word(data) | <uint64_t> _word(data + size - 4) << (8 * (size - 4)))
    elif size > 0:
        _add_word(&hashed, data[0] | <uint64_t> data[size >> 1] << (8 * (size >> 1)) | <uint64_t> data[size - 1] << (8 * (size - 1)))
    given[0] = hashed


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
    """Holds a column of bytes.

    Args:
        validity: a bit for each row; None: no row is null.
        offsets: the begin of each row in `data`, and the end of the last row: 32 bits each, 64 if `is_large`.
        data: the bytes of all rows; None: there are no bytes.
        first: number of rows in these buffers before the column's own.
        length: number of rows of the column.

    Raises:
        ValueError: a buffer is too short. The offsets are checked when their row is read: then BadRow names the row.
    """

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
    """Holds a column of whole milliseconds since 1970, 64 bits each. The other arguments and errors are those of `Strings`."""

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
    """Holds a column of numbers of partitions, 32 bits each, 64 if `is_large`. The other arguments and errors are those of `Strings`."""

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
    """Holds a column of lists of headers.

    Args:
        validity, offsets, first, length, is_large: as in `Strings`; the offsets count headers.
        pairs: a bit for each header, and the number of bits before the first one's; None: no header is null.
        names, values: of all headers.
    """

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
    """Return the number of rows from `at` on, of `rows`, that fit into `most` bytes as records, and an upper bound of their bytes.

    The number is at least 1 if `rows` is. A row that may have more than `longest` bytes is measured alone. The rows end before a bad row,
    and before a row that may have more than `longest` bytes.

    Raises:
        BadRow: the first row is bad.
        ValueError: there are no such rows.
    """
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
    """Encode `rows` rows from `at` on as batches of records. Returns the batches of each group, in their order.

    A batch has at most `room` bytes, or one record. `picks`, of the type code "H", has the group of each row, below `groups`; None: all are
    in the first. A row without a time gets `now_ms`; without `moments` all rows get it.

    Raises:
        BadRow: a row cannot be a record, or the records have more than `most` bytes: they had not when they were measured.
        IndexError: a row's group is not below `groups`.
        ValueError: there are no such rows, `groups`, `room` or `most` is out of range, or `now_ms` is negative.
    """
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
    """Return how many of `rows` rows from `at` on have a partition below `partitions` or null, and their highest partition, or -1.

    If the first row's partition is not below `partitions`, the result is 1 and that partition. The rows end before a bad row.

    Raises:
        BadRow: the first row is bad.
        ValueError: there are no such rows.
    """
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
    """Group `rows` rows from `at` on by partition, in the order of the first row of each group.

    A row that has a partition in `column`, the column of partitions, belongs there. Rows without it and without a key belong to the
    partition `nobodys`; if that is -1, they are a group of their own. There may be no column of keys, or none of partitions.

    Returns:
        the group of each row; and the partition of each group.

    Raises:
        BadRow: a key's bytes cannot be found, or a row's partition does not exist.
        ValueError: there are no such rows, or too many at a time.
    """
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
    """Return the sum modulo 2**64 of the hashes of `rows` rows from `at` on. Without `moments`, `moment` is the time of all; -1: none.

    The words of a row go to two lanes in turn, which its hash mixes. They are the size and the bytes of the value, those of the key, and
    those of the headers, time and partition that the row has. A last word of bytes overlaps the one before it.

    Raises:
        BadRow: a row cannot be a record.
        ValueError: there are no such rows.
    """
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

cdef extern from *:
    """
    #if defined(__GNUC__) && defined(__x86_64__)
    #define has_crc_instruction() __builtin_cpu_supports("sse4.2")
    #define CRC_TARGET __attribute__((target("sse4.2")))
    #define crc_of_8(crc, word) ((uint32_t) __builtin_ia32_crc32di(crc, word))
    #define crc_of_1(crc, byte) __builtin_ia32_crc32qi(crc, byte)
    #elif defined(__ARM_FEATURE_CRC32)
    #include <arm_acle.h>
    #define has_crc_instruction() 1
    #define CRC_TARGET
    #define crc_of_8(crc, word) __crc32cd(crc, word)
    #define crc_of_1(crc, byte) __crc32cb(crc, byte)
    #else
    /* The package is taken. */
    #define has_crc_instruction() 0
    #define CRC_TARGET
    #define crc_of_8(crc, word) (crc)
    #define crc_of_1(crc, byte) (crc)
    #endif
    CRC_TARGET static uint32_t crc_of_words(uint32_t crc, const unsigned char *at, size_t size) {
        uint64_t word;
        /* Each word by itself, so that the instruction reads it where it is. */
        for (; size >= 32; size -= 32, at += 32) {
            memcpy(&word, at, 8);
            crc = crc_of_8(crc, word);
            memcpy(&word, at + 8, 8);
            crc = crc_of_8(crc, word);
            memcpy(&word, at + 16, 8);
            crc = crc_of_8(crc, word);
            memcpy(&word, at + 24, 8);
            crc = crc_of_8(crc, word);
        }
        for (; size >= 8; size -= 8, at += 8) {
            memcpy(&word, at, 8);
            crc = crc_of_8(crc, word);
        }
        for (; size; size--, at++) crc = crc_of_1(crc, *at);
        return crc;
    }
    /* The instruction takes three cycles, and another one can begin in each. So three blocks are read at the same time, and their checksums
       are joined: that of a block becomes, behind the next block, that of itself and as many zeros. */
    #define CRC_BLOCK 1024
    /* For each byte of a checksum, at each of its places, the checksum behind a block of zeros. */
    static uint32_t crcs_behind[4][256];
    static void make_crcs_behind(void) {
        static const unsigned char zeros[CRC_BLOCK];
        for (int place = 0; place < 4; place++)
            for (uint32_t byte = 1; byte < 256; byte++) {
                uint32_t rest = byte & (byte - 1);
                crcs_behind[place][byte] =
                    rest ? crcs_behind[place][rest] ^ crcs_behind[place][byte ^ rest] : crc_of_words(byte << 8 * place, zeros, CRC_BLOCK);
            }
    }
    static inline uint32_t crc_behind(uint32_t crc) {
        return crcs_behind[0][crc & 0xFF] ^ crcs_behind[1][crc >> 8 & 0xFF] ^ crcs_behind[2][crc >> 16 & 0xFF] ^ crcs_behind[3][crc >> 24];
    }
    CRC_TARGET static uint32_t crc_by_instruction(uint32_t crc, const unsigned char *at, size_t size) {
        for (; size >= 3 * CRC_BLOCK; size -= 3 * CRC_BLOCK, at += 3 * CRC_BLOCK) {
            uint32_t second = 0, third = 0;
            for (size_t done = 0; done < CRC_BLOCK; done += 8) {
                uint64_t word;
                memcpy(&word, at + done, 8);
                crc = crc_of_8(crc, word);
                memcpy(&word, at + CRC_BLOCK + done, 8);
                second = crc_of_8(second, word);
                memcpy(&word, at + 2 * CRC_BLOCK + done, 8);
                third = crc_of_8(third, word);
            }
            crc = crc_behind(crc_behind(crc) ^ second) ^ third;
        }
        return crc_of_words(crc, at, size);
    }
    """
    bint has_crc_instruction() noexcept nogil
    void make_crcs_behind() noexcept nogil
    uint32_t crc_by_instruction(uint32_t crc, const unsigned char* at, size_t size) noexcept nogil


# Whether this processor and compiler have the instruction. Without, the package crc32c computes the checksums.
HAS_CRC = bool(has_crc_instruction())
if HAS_CRC:
    make_crcs_behind()


def crc32c(data, uint32_t value=0):
    """Return the CRC-32C of bytes behind others whose CRC is `value`. Only with HAS_CRC."""
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    value = crc_by_instruction(~value, <const unsigned char *> view.buf, view.len)
    PyBuffer_Release(&view)
    return ~value
