# What the other compiled modules use of `_delivery`.

cimport cython

from aioproducer.engine.delivery._produce_request_result cimport BatchResult


@cython.final
cdef class Delivery:
    cdef public BatchResult _result
    cdef public Py_ssize_t index

    cpdef BatchResult _follow(self)


cdef Delivery delivery_of(BatchResult result, Py_ssize_t index)
