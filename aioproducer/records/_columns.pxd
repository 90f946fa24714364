# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False, nonecheck=False
# The layouts of Arrow columns, and the inline functions that read a row, write its parts and hash them.

from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset


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
    /* The table is taken. */
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
