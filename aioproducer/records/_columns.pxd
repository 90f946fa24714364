# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False, nonecheck=False
# The layouts of Arrow columns, and the inline functions that read a row, write its parts and hash them.

from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset


cdef enum:
    # Java's DefaultRecord.MAX_RECORD_OVERHEAD.
    _OVERHEAD = 21
    # The rows whose values are fetched from memory together.
    _TOGETHER = 16
    # The most rows of one call of `assign`, which counts groups in 16 bits.
    _MOST_ROWS = 65535

cdef enum Trouble:
    NONE
    OFFSETS
    TIME
    ORDER
    NULL_HEADER
    NULL_NAME

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

cdef struct Work:
    Py_ssize_t count
    Py_ssize_t size
    int64_t base
    int64_t latest
    # the sizes of the first record's key and value
    int64_t key_size
    int64_t value_size
    # the sum of all bytes that were read ahead, so that no compiler leaves the reads out
    unsigned char ends_read
    bint keys_differ
    bint values_differ
    bint moments_differ
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


cdef inline unsigned char _ends_of(const Span* values, const int* order, Py_ssize_t length, Py_ssize_t at, Py_ssize_t end) noexcept nogil:
    """Read the ends of the values of rows, and return the sum of those bytes. Rows out of bounds are left out: `_encode` refuses them."""
    cdef unsigned char total = 0
    cdef int64_t size
    cdef const char* data = NULL
    for at in range(at, end):
        if 0 <= order[at] < length:
            size = _find(values, order[at], &data)
            if size > 0:
                total += <unsigned char> (data[0] + data[size - 1])
    return total


cdef inline void _encode(
    const Span* values, const Span* keys, const Clock* clock, const Lists* lists, int64_t now_ms,
    const int* order, Py_ssize_t length, Py_ssize_t at, Py_ssize_t end, unsigned char* out, Py_ssize_t room, Work* work,
) noexcept nogil:
    cdef Py_ssize_t row, index = 0
    cdef int64_t key_size = -1, value_size, headers_size, moment, delta, body, left = room
    cdef const char* key = NULL
    cdef const char* value = NULL
    cdef unsigned char* begin = out
    cdef const unsigned char* most = out + room
    memset(work, 0, sizeof(Work))
    work.base = work.latest = now_ms
    while at < end:
        # The rows of one partition lie apart in memory. Reads that follow each other wait for memory together, and those of `_find` and
        # `memcpy` below, with a row's work between them, each by itself.
        if order != NULL and index % _TOGETHER == 0:
            work.ends_read += _ends_of(values, order, length, at, min(at + _TOGETHER, end))
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
        headers_size = _headers_size(lists, row, NULL)
        if headers_size < 0:
            work.trouble, work.row = <Trouble> -headers_size, row
            break
        if index == 0:
            work.base = work.latest = moment
        delta = moment - work.base
        body = 1 + _varint_size(_zigzag(delta)) + _varint_size(_zigzag(index)) + _field_size(key_size) + _field_size(value_size)
        body += headers_size
        left -= _field_size(body)
        if left < 0:
            break
        out = _put(out, _zigzag(body))
        out[0] = 0
        out = _put(out + 1, _zigzag(delta))
        out = _put(out, _zigzag(index))
        out = _put_field(out, most, keys, key, key_size)
        out = _put_field(out, most, values, value, value_size)
        if headers_size > 1:
            out = _put_headers(out, most, lists, row, headers_size)
            if out == NULL:
                work.trouble, work.row = OFFSETS, row
                break
        else:
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
