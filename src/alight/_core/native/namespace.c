/* A module whose names are another's: what `alight run` and `jit` put where NumPy stood. */
#include "core.h"

/* Behind the fields of a module, whose size only the interpreter knows. */
typedef struct {
    PyObject *real, *names, *stand_ins;
} Shown;

static inline Shown *shown(PyObject *self) { return (Shown *)((char *)self + PyModule_Type.tp_basicsize); }

/* Return what stands for a name's object, which is taken over, or that object. */
static PyObject *standing(Shown *self, PyObject *name, PyObject *found)
{
    PyObject *entry = PyDict_GetItemWithError(self->stand_ins, name), *result = found;
    if (entry == NULL) {
        result = PyErr_Occurred() ? NULL : Py_NewRef(found);
    } else if (!PyTuple_CheckExact(entry)) {
        Py_INCREF(entry); /* it puts a pair in its own place */
        result = PyObject_CallOneArg(entry, found);
        Py_DECREF(entry);
    } else {
        result = Py_NewRef(PyTuple_GET_ITEM(entry, 0) == found ? PyTuple_GET_ITEM(entry, 1) : found);
    }
    Py_DECREF(found);
    return result;
}

static PyObject *namespace_getattro(PyObject *object, PyObject *name)
{
    Shown *self = shown(object);
    PyObject *found = PyDict_GetItemWithError(self->names, name);
    if (found != NULL) {
        Py_INCREF(found);
    } else if (PyErr_Occurred() || (found = PyObject_GetAttr(self->real, name)) == NULL) {
        return NULL;
    }
    return standing(self, name, found);
}

static int namespace_setattro(PyObject *object, PyObject *name, PyObject *value)
{
    Shown *self = shown(object);
    PyObject *entry = value == NULL ? NULL : PyDict_GetItemWithError(self->stand_ins, name);
    if (entry == NULL && PyErr_Occurred()) {
        return -1;
    }
    if (entry != NULL && PyTuple_CheckExact(entry) && PyTuple_GET_ITEM(entry, 1) == value) {
        value = PyTuple_GET_ITEM(entry, 0);
    }
    return PyObject_SetAttr(self->real, name, value);
}

static PyObject *namespace_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *real, *stand_ins;
    if (!PyArg_ParseTuple(args, "O!O!:Namespace", &PyModule_Type, &real, &PyDict_Type, &stand_ins)) {
        return NULL;
    }
    PyObject *object = PyModule_Type.tp_new(type, args, kwargs);
    if (object != NULL) {
        Shown *self = shown(object);
        self->real = Py_NewRef(real);
        self->names = Py_NewRef(PyModule_GetDict(real));
        self->stand_ins = Py_NewRef(stand_ins);
    }
    return object;
}

static int namespace_init(PyObject *self, PyObject *args, PyObject *kwargs)
{
    PyObject *name = PyObject_GetAttrString(PyTuple_GET_ITEM(args, 0), "__name__");
    PyObject *given = name == NULL ? NULL : PyTuple_Pack(1, name);
    int done = given == NULL ? -1 : PyModule_Type.tp_init(self, given, NULL);
    /* What the interpreter reads past its attributes: for errors of imports. */
    static const char *const read[] = {"__file__", "__spec__"};
    for (int i = 0; i < 2 && done == 0; i++) {
        PyObject *found = PyDict_GetItemString(shown(self)->names, read[i]);
        if (found != NULL) {
            done = PyDict_SetItemString(PyModule_GetDict(self), read[i], found);
        }
    }
    Py_XDECREF(given);
    Py_XDECREF(name);
    return done;
}

static int namespace_traverse(PyObject *object, visitproc visit, void *arg)
{
    Shown *self = shown(object);
    Py_VISIT(self->real);
    Py_VISIT(self->names);
    Py_VISIT(self->stand_ins);
    return PyModule_Type.tp_traverse(object, visit, arg);
}

static void namespace_dealloc(PyObject *object)
{
    /* Names are looked up without a look at these, so they stay until nobody has the module. */
    PyObject_GC_UnTrack(object);
    Shown *self = shown(object);
    Py_CLEAR(self->real);
    Py_CLEAR(self->names);
    Py_CLEAR(self->stand_ins);
    PyObject_GC_Track(object); /* as the base's own finds it */
    PyModule_Type.tp_dealloc(object);
}

static int namespace_clear(PyObject *object) { return PyModule_Type.tp_clear(object); }

PyTypeObject NamespaceType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "alight._core._native.Namespace",
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .tp_new = namespace_new,
    .tp_init = namespace_init,
    .tp_dealloc = namespace_dealloc,
    .tp_traverse = namespace_traverse,
    .tp_clear = namespace_clear,
    .tp_getattro = namespace_getattro,
    .tp_setattro = namespace_setattro,
};

void namespace_sized(void)
{
    NamespaceType.tp_base = &PyModule_Type;
    NamespaceType.tp_basicsize = PyModule_Type.tp_basicsize + (Py_ssize_t)sizeof(Shown);
}
