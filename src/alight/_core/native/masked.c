/* Elements put where a mask is true, and no byte beside them stored to. */
#include "core.h"

#include <string.h>

static PyObject *numpys; /* copyto itself: about the public one it asks a function in Python */

#define TOGETHER 8 /* elements whose masks are read as one number */
#define ALL_TRUE 0x0101010101010101ULL

/* Of complex numbers, which may lie where only their parts are aligned. */
typedef struct {
    uint32_t real, imag;
} Halves;

typedef struct {
    uint64_t low, high;
} Wide;

/* What is not put goes elsewhere: a branch at each element of a mask that no one foresees takes ten times as long. */
#define PUT(name, type)                                                                            \
    static void name(char *to, const char *from, const char *mask, npy_intp count, type *elsewhere) \
    {                                                                                              \
        type *target = (type *)to;                                                                 \
        const type *source = (const type *)from;                                                   \
        npy_intp i = 0;                                                                            \
        for (; i + TOGETHER <= count; i += TOGETHER) {                                             \
            uint64_t wanted;                                                                       \
            memcpy(&wanted, mask + i, sizeof(wanted));                                             \
            if (wanted == 0) continue;                                                             \
            if (wanted == ALL_TRUE) {                                                              \
                memcpy(target + i, source + i, TOGETHER * sizeof(type));                           \
                continue;                                                                          \
            }                                                                                      \
            for (npy_intp k = i; k < i + TOGETHER; k++) {                                          \
                uintptr_t there = (uintptr_t)(target + k), beside = (uintptr_t)elsewhere;                \
                type *place = (type *)(beside ^ ((beside ^ there) & ((uintptr_t)0 - (mask[k] != 0))));     \
                *place = source[k];                                                                \
            }                                                                                      \
        }                                                                                          \
        for (; i < count; i++) {                                                                   \
            if (mask[i]) target[i] = source[i];                                                    \
        }                                                                                          \
    }

PUT(put_1, uint8_t)
PUT(put_2, uint16_t)
PUT(put_4, uint32_t)
PUT(put_8, uint64_t)
PUT(put_4_4, Halves)
PUT(put_16, Wide)

static bool apart(PyArrayObject *one, PyArrayObject *other)
{
    const char *a = PyArray_BYTES(one), *b = PyArray_BYTES(other);
    return a + PyArray_NBYTES(one) <= b || b + PyArray_NBYTES(other) <= a;
}

/* Whether all three lie alike, one element after the other, and are what the loops take. */
static bool alike(PyArrayObject *to, PyArrayObject *from, PyArrayObject *mask)
{
    int kind = PyArray_TYPE(to), rows = PyArray_FLAGS(to) & PyArray_FLAGS(from) & PyArray_FLAGS(mask);
    int ndim = PyArray_NDIM(to);
    if (!PyTypeNum_ISNUMBER(kind) && kind != NPY_BOOL) return false;
    if (PyArray_TYPE(from) != kind || PyArray_TYPE(mask) != NPY_BOOL) return false;
    if (!PyArray_ISBEHAVED(to) || !PyArray_ISBEHAVED_RO(from)) return false;
    if (!(rows & (NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_F_CONTIGUOUS))) return false;
    if (PyArray_NDIM(from) != ndim || PyArray_NDIM(mask) != ndim) return false;
    for (int axis = 0; axis < ndim; axis++) {
        if (PyArray_DIM(from, axis) != PyArray_DIM(to, axis) || PyArray_DIM(mask, axis) != PyArray_DIM(to, axis)) return false;
    }
    return apart(to, from) && apart(to, mask);
}

PyObject *copy_where(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t count)
{
    if (count != 4) {
        PyErr_Format(PyExc_TypeError, "copy_where takes a target, a source, casting and a mask, not %zd arguments", count);
        return NULL;
    }
    if (PyArray_CheckExact(args[0]) && PyArray_CheckExact(args[1]) && PyArray_CheckExact(args[3])) {
        PyArrayObject *to = (PyArrayObject *)args[0], *from = (PyArrayObject *)args[1], *mask = (PyArrayObject *)args[3];
        if (alike(to, from, mask)) {
            char *target = PyArray_BYTES(to);
            const char *source = PyArray_BYTES(from), *wanted = PyArray_BYTES(mask);
            npy_intp elements = PyArray_SIZE(to);
            union { uint8_t one; uint16_t two; uint32_t four; uint64_t eight; Halves halves; Wide sixteen; } elsewhere;
            size_t aligned = (size_t)PyDataType_ALIGNMENT(PyArray_DESCR(to));
            bool done = true;
            NPY_BEGIN_THREADS_DEF;
            NPY_BEGIN_THREADS_THRESHOLDED(elements);
            switch (PyArray_ITEMSIZE(to)) {
            case 1: put_1(target, source, wanted, elements, &elsewhere.one); break;
            case 2: put_2(target, source, wanted, elements, &elsewhere.two); break;
            case 4: put_4(target, source, wanted, elements, &elsewhere.four); break;
            case 8:
                if (aligned >= _Alignof(uint64_t))
                    put_8(target, source, wanted, elements, &elsewhere.eight);
                else
                    put_4_4(target, source, wanted, elements, &elsewhere.halves);
                break;
            case 16:
                done = aligned >= _Alignof(Wide);
                if (done) put_16(target, source, wanted, elements, &elsewhere.sixteen);
                break;
            default: done = false;
            }
            NPY_END_THREADS;
            if (done) Py_RETURN_NONE;
        }
    }
    return PyObject_Vectorcall(numpys, args, (size_t)count, NULL);
}

bool masked_ready(void)
{
    PyObject *numpy = PyImport_ImportModule("numpy");
    PyObject *public = numpy == NULL ? NULL : PyObject_GetAttrString(numpy, "copyto");
    numpys = public == NULL ? NULL : PyObject_GetAttrString(public, "_implementation");
    Py_XDECREF(numpy);
    Py_XDECREF(public);
    return numpys != NULL;
}
