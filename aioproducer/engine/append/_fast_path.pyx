# cython: language_level=3, boundscheck=True, wraparound=False, nonecheck=True, auto_pickle=False
# cython: binding=False, embedsignature=True, embedsignature.format=clinic
"""The fast path of `send`, compiled. The twin is `fast_path.py`.

Unlike the twin, it also appends a record with a partition, a timestamp or headers, where an open batch has bytes left for it. On every
Python version the thread identifies the loop; `tick` looks at the loop itself, once an event-loop iteration.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItemWithError
from cpython.long cimport PyLong_CheckExact
from cpython.object cimport PyObject
from cpython.unicode cimport PyUnicode_CheckExact
from libc.stdint cimport int64_t, uint32_t

from aioproducer.engine.delivery._delivery cimport Delivery, delivery_of
from aioproducer.engine.delivery._records_builder cimport MemoryRecordsBuilder, encoded_headers

from aioproducer import serializers
from aioproducer.serializers import BYTES
from aioproducer.engine.append import fast_path as twin
from aioproducer.core.record_validation import header_pairs
from aioproducer.interfaces import USER_FAILURES

cdef extern from *:
    """
    #ifndef SOURCE_CRC
    #define SOURCE_CRC 0U
    #endif
    """
    const uint32_t SOURCE_CRC

cdef extern from *:
    """
    #include <time.h>
    #ifdef CLOCK_MONOTONIC_COARSE
    #define HAS_TICKS 1
    static double ticked(void) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
        return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    }
    #else
    #define HAS_TICKS 0
    static double ticked(void) { return 0.0; }
    #endif
    """
    # There is a monotonic clock that the kernel's timer moves every few milliseconds. To read it takes a sixth of `time.monotonic`, which
    # asks the processor. Linux has it.
    const bint HAS_TICKS
    # Return its seconds.
    double ticked() noexcept nogil

cdef extern from "Python.h":
    unsigned long PyThread_get_thread_ident() noexcept nogil

# CRC-32 of the sources of all compiled modules, as setup.py read them.
SOURCE = SOURCE_CRC
SLICE_BYTES = 131_072
SLICE_RECORDS = twin.SLICE_RECORDS
Encoded = twin.Encoded

cdef Py_ssize_t _SLICE_RECORDS = SLICE_RECORDS
cdef bytes _NO_HEADERS = b"\0"
cdef int _OF_VALUE = serializers.OF_VALUE
cdef int _OF_RECORD = serializers.OF_RECORD


cdef inline uint32_t hashed(const unsigned char *data, Py_ssize_t size) noexcept nogil:
    """Return Kafka's murmur2."""
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


def here():
    """Return the value that identifies the producer's loop: its thread."""
    return PyThread_get_thread_ident()


def murmur2(bytes key not None):
    """Return the hash of a key, as `core.partitioner.murmur2` does."""
    return hashed(<const unsigned char *>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key))


cdef inline bint is_empty(object headers):
    return (type(headers) is tuple or type(headers) is list) and len(headers) == 0


cdef inline object queue_of(object routing, bytes key):
    """Return the partition queue of a key; None: the topic has no partitions."""
    cdef list queues = routing.queues
    cdef Py_ssize_t size = len(queues)
    if not size:
        return None
    return queues[(hashed(<const unsigned char *>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key)) & 0x7FFFFFFFU) % <uint32_t>size]


cdef object numbered_queue(object routing, object partition):
    """Return the partition queue of that number; None: there is none, or it is no number."""
    cdef list queues = routing.queues
    cdef Py_ssize_t index
    if not PyLong_CheckExact(partition):
        return None
    try:
        index = partition
    except OverflowError:
        return None
    return queues[index] if 0 <= index < len(queues) else None


cdef inline bint is_time(object timestamp_ms):
    """Return whether a record may have this timestamp; None: it has none of its own."""
    cdef int64_t time
    if timestamp_ms is None:
        return True
    if not PyLong_CheckExact(timestamp_ms):
        return False
    try:
        time = timestamp_ms
    except OverflowError:
        return False
    return time >= 0


cdef inline Delivery put_in(object opened, object now_ms, object key, object value, bytes headers):
    """Append to a partition's open batch; None: there is none, it has too few bytes left, or the record is not plain."""
    cdef MemoryRecordsBuilder builder
    cdef Py_ssize_t index
    if type(opened) is not MemoryRecordsBuilder:
        return None
    builder = <MemoryRecordsBuilder>opened
    index = builder.append_plain(now_ms, key, value, headers)
    return delivery_of(builder.result, index) if index >= 0 else None


@cython.final
cdef class Step:
    """Holds a `serializers.Step`."""

    cdef object function, kind
    cdef int shape
    cdef str what, name

    def __init__(self, str what not None, step):
        self.what = what
        self.name = f"{what}_serializer"
        self.function, self.shape, self.kind, _ = step


@cython.final
cdef class Steps:
    """Holds the steps of a prepared `Encoding`, which keeps them as `fast`."""

    cdef Step key, value
    cdef bint is_two_phase

    def __init__(self, encoding):
        self.key = Step("key", encoding.key)
        self.value = Step("value", encoding.value)
        self.is_two_phase = encoding.is_two_phase


cdef Steps steps_of(object encoding):
    """Return the steps of an encoding; None: it is not prepared, or an encoder is stale."""
    cdef Steps steps
    made = encoding.fast
    if made is not None:
        steps = <Steps?>made
        return steps if not steps.is_two_phase or encoding.is_current() else None
    if not encoding.is_current():
        return None
    steps = Steps(encoding)
    encoding.fast = steps
    return steps


cdef class FastPath:
    __doc__ = twin.FastPath.__doc__

    cdef public dict fast
    cdef public dict encodings
    cdef public object turn_ms, tick, make_room, goes_on, slowly, now
    cdef object timed_by, clock
    cdef public Py_ssize_t taken
    cdef public bint takes_headers
    # Seconds after which a serializer is slow.
    cdef double slow_after
    # Serializers are timed by `ticked`.
    cdef bint is_ticked
    # 0 for no thread: no thread has that id.
    cdef unsigned long thread

    def __init__(self, tick, slowly):
        self.fast = {}
        self.turn_ms = 0
        self.taken = 0
        self.takes_headers = True
        self.tick = tick
        self.encodings = None
        self.goes_on = lambda: True
        self.make_room = lambda routing, queue, key, value: None
        self.slowly = slowly

    @property
    def here(self):
        return self.thread or None

    @here.setter
    def here(self, thread):
        self.thread = 0 if thread is None else thread

    @property
    def watch(self):
        return self.timed_by

    @watch.setter
    def watch(self, watch):
        self.timed_by = watch
        self.clock, self.slow_after = watch.clock, watch.slow_after
        # A virtual clock moves only when it is told to.
        self.is_ticked = HAS_TICKS and watch.is_real

    def append(self, topic, value, key, partition, timestamp_ms, headers):
        """Append a record of bytes to its partition's open batch. Returns its delivery, or None: the record takes the slow path.

        The slow path raises the error of a record that is not valid.
        """
        return self.append_bytes(topic, value, key, partition, timestamp_ms, headers)

    def append_encoded(self, topic, value, key, partition, timestamp_ms, headers, encoding):
        """Encode a record and append it, as `append` does. Returns its delivery, or what the slow path takes: None, or what was encoded.

        `encoding`: how its key and value become bytes; None: as `encodings` has it.

        Raises:
            SerializationError: a serializer failed.
        """
        if encoding is BYTES or encoding is None and self.encodings is None:
            return self.append_bytes(topic, value, key, partition, timestamp_ms, headers)
        return self.encode_and_append(topic, value, key, partition, timestamp_ms, headers, encoding)

    @cython.final
    cdef inline Delivery append_bytes(self, object topic, object value, object key, object partition, object timestamp_ms, object headers):
        if not PyUnicode_CheckExact(topic) or PyThread_get_thread_ident() != self.thread:
            return None
        return self.append_here(topic, value, key, partition, timestamp_ms, headers)

    @cython.final
    cdef inline Delivery append_here(self, object topic, object value, object key, object partition, object timestamp_ms, object headers):
        """Append a record of bytes for a topic that is a string, in the producer's loop."""
        cdef PyObject *found
        if self.fast is None:
            return None
        found = PyDict_GetItemWithError(self.fast, topic)
        if found == NULL:
            return None
        # A counted reference: code that runs from here on may change the table.
        routing = <object>found
        if partition is None and timestamp_ms is None and is_empty(headers):
            return self.append_plain(routing, value, key)
        return self.append_dressed(routing, value, key, partition, timestamp_ms, headers)

    @cython.final
    cdef object encode_and_append(
        self, object topic, object value, object key, object partition, object timestamp_ms, object headers, object encoding
    ):
        cdef Steps steps
        cdef Delivery delivery
        cdef object encoded_key = None, encoded_value = None
        # The topic is looked up after the serializer was called, which may have sent, too.
        if not self.fast or not PyUnicode_CheckExact(topic) or PyThread_get_thread_ident() != self.thread:
            return None
        if encoding is None:
            encoding = self.encodings.get(topic)
            if encoding is None:
                return None
        # Records that the slow path refuses before it encodes them.
        if not (partition is None or PyLong_CheckExact(partition) and partition >= 0) or not is_time(timestamp_ms):
            return None
        steps = steps_of(encoding)
        if steps is None:
            return None
        given = () if headers is None else headers
        if not is_empty(given):
            given = header_pairs(given)
        if key is not None:
            encoded_key = self.encoded(steps.key, topic, given, key)
            if not PyBytes_CheckExact(encoded_key):
                encoded_key, given = serializers.finish("key", steps.key.shape, topic, given, encoded_key)
        if value is not None:
            encoded_value = self.encoded(steps.value, topic, given, value)
            if not PyBytes_CheckExact(encoded_value):
                encoded_value, given = serializers.finish("value", steps.value.shape, topic, given, encoded_value)
        delivery = self.append_here(topic, encoded_value, encoded_key, partition, timestamp_ms, given)
        return delivery if delivery is not None else Encoded((encoded_value, encoded_key, given))

    @cython.final
    cdef object encoded(self, Step step, object topic, object headers, object value):
        """Return what a serializer makes of a key or value, which is not None."""
        cdef double began, seconds
        if step.function is None:
            return value if PyBytes_CheckExact(value) else serializers.as_bytes(step.what, topic, value)
        if step.kind is not None and type(value) is not step.kind and not isinstance(value, step.kind):
            raise serializers.mistyped(step.what, step.kind, topic, value)
        began = self.now_s()
        try:
            if step.shape == _OF_VALUE:
                made = step.function(value)
            elif step.shape == _OF_RECORD:
                made = step.function(topic, headers, value)
            else:
                made = step.function(value, headers)
        except USER_FAILURES as error:
            self.timed_by.note(step.name, self.now_s() - began)
            raise serializers.failure(step.what, topic, value, error) from error
        seconds = self.now_s() - began
        if seconds > self.slow_after:
            self.timed_by.note(step.name, seconds)
        return made

    @cython.final
    cdef inline double now_s(self) except? -1.0:
        """Return the time by which serializers are timed, in seconds."""
        return ticked() if self.is_ticked else self.clock()

    @cython.final
    cdef Delivery append_plain(self, object routing, object value, object key):
        cdef object queue, now_ms
        cdef Delivery delivery
        if key is None:
            queue = routing.sticky
        elif PyBytes_CheckExact(key):
            queue = queue_of(routing, <bytes>key)
        else:
            return None
        now_ms = self.count_one()
        if now_ms is None or queue is None:
            return None
        delivery = put_in(queue.open, now_ms, key, value, _NO_HEADERS)
        if delivery is not None:
            return delivery
        return self.make_room(routing, queue, key, value)

    @cython.final
    cdef Delivery append_dressed(self, object routing, object value, object key, object partition, object timestamp_ms, object headers):
        """Append a record that is not plain, where an open batch takes it as it is."""
        cdef object queue, now_ms
        cdef bytes encoded = _NO_HEADERS
        if partition is not None:
            queue = numbered_queue(routing, partition)
        elif key is None:
            queue = routing.sticky
        elif PyBytes_CheckExact(key):
            queue = queue_of(routing, <bytes>key)
        else:
            queue = None
        if not is_empty(headers):
            encoded = encoded_headers(headers) if self.takes_headers else None
        if queue is None or encoded is None or not is_time(timestamp_ms):
            return None
        now_ms = self.count_one()
        if now_ms is None:
            return None
        return put_in(queue.open, now_ms if timestamp_ms is None else timestamp_ms, key, value, encoded)

    @cython.final
    cdef object count_one(self):
        """Count one more record. Returns the time of the event-loop iteration; None: the iteration has appended enough."""
        cdef object now_ms = self.turn_ms
        if not now_ms:
            now_ms = self.tick()
        self.taken += 1
        return None if self.taken > _SLICE_RECORDS and not self.goes_on() else now_ms


@cython.final
cdef class EncodingFastPath(FastPath):
    __doc__ = twin.EncodingFastPath.__doc__

    def append(self, topic, value, key, partition, timestamp_ms, headers):
        """Encode a record as the options say and append it, as `FastPath.append_encoded` does."""
        return self.encode_and_append(topic, value, key, partition, timestamp_ms, headers, None)
