/* Host memory for results, for every extension of the core; buffers.c says what it is. */
#ifndef ALIGHT_BUFFERS_H
#define ALIGHT_BUFFERS_H

/* Return an uninitialised ndarray that owns its memory, or NULL with an error. Takes over the descr. */
typedef PyObject *(*FreshArray)(PyArray_Descr *descr, int ndim, const npy_intp *shape, const npy_intp *strides, int fortran);

#define BUFFERS_CAPSULE "alight._core._native.buffers"

#endif
