# The declarations of `_records_builder` that the other compiled modules use.

cimport cython
from libc.stdint cimport int64_t

from aioproducer.engine.delivery._produce_request_result cimport ProduceRequestResult


@cython.final
cdef class MemoryRecordsBuilder:
    cdef readonly ProduceRequestResult result
    cdef readonly Py_ssize_t count
    cdef readonly Py_ssize_t granted
    cdef object stamp
    cdef bytes payload
    cdef char *buffer
    cdef char *place
    cdef Py_ssize_t bytes_left
    cdef int64_t delta, base, first_delta, latest
    cdef Py_ssize_t key_size, value_size
    cdef bint has_even_keys, has_even_values, has_even_deltas

    cdef Py_ssize_t append_plain(self, object timestamp_ms, object key, object value, bytes headers) except -2
    cdef int set_time(self, object timestamp_ms) except -1
    cdef int64_t time_at(self, int64_t delta) noexcept
    cdef Py_ssize_t body_size(self, Py_ssize_t key_size, Py_ssize_t value_size, Py_ssize_t headers_size) noexcept
    cdef Py_ssize_t write(
        self, Py_ssize_t size, Py_ssize_t key_size, const char *key, Py_ssize_t value_size, const char *value,
        Py_ssize_t headers_size, const char *headers,
    ) noexcept
    cdef RecordSizes record_sizes(self)


@cython.final
cdef class RecordSizes:
    cdef Py_ssize_t key_size, value_size
    cdef int64_t delta
    cdef bytes key_sizes, value_sizes, deltas

    cdef void read(self, const char *place, Py_ssize_t count) noexcept


cdef bytes encoded_headers(object headers)
