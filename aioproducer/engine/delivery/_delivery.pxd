# The declarations of `_delivery` that the other compiled modules use.

cimport cython

from aioproducer.engine.delivery._produce_request_result cimport ProduceRequestResult


@cython.final
cdef class Delivery:
    cdef public ProduceRequestResult _result
    cdef public Py_ssize_t index

    cpdef ProduceRequestResult _follow(self)


cdef Delivery delivery_of(ProduceRequestResult result, Py_ssize_t index)
