# The attributes of the classes of `produce_request_result.py`, which is compiled under this name: typed access for the other modules.
# Numbers stay Python objects, because the metadata of every record shares them.

cdef class DeliveryContext:
    cdef public object loop
    cdef public object on_unseen
    cdef public object context
    cdef public object watch
    cdef public object _cancelled
    cdef public object _is_calling_back
    cdef public object _wall_clock

    cpdef object shared(self, object context)
    cpdef object cancelled(self, object message)


cdef class ProduceRequestResult:
    cdef public DeliveryContext delivery_context
    cdef public object topic
    cdef public object partition
    cdef public object base_timestamp
    cdef public object timestamp_type
    cdef public object outcome
    cdef public object base_offset
    cdef public object count
    cdef public object error
    cdef public object looked_at
    cdef public list futures
    cdef public list callbacks
    cdef public object cancel_message
    cdef public object record_sizes
    cdef public object _key_sizes
    cdef public object _value_sizes
    cdef public object _deltas
    cdef public object _unseen
    cdef public list _late
    cdef public object _moved
    cdef public object _places
    cdef public object _placed
    cdef public object _gone
