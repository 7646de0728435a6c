/* ArrayBase: a storage and a view of it; its operators are in operators.c. */
#include "core.h"

/* Arrays that died, to be given out again: small work makes one for each op. A row of NumPy's loops over elements
   has a few at a time. */
enum { SPARE = 32 };
static PyObject *spare[SPARE];
static int spares;

/* Return an array whose fields are NULL, which the collector looks at or not. */
static Array *array_alloc(PyTypeObject *type, bool tracked)
{
    PyObject *self;
    if (spares > 0 && (PyObject *)type == hooks->array) {
        self = PyObject_Init(spare[--spares], type);
    } else if ((self = type->tp_alloc(type, 0)) != NULL) {
        PyObject_GC_UnTrack(self);
    }
    if (tracked && self != NULL) {
        PyObject_GC_Track(self);
    }
    return (Array *)self;
}

PyObject *array_over(PyTypeObject *type, PyObject *storage, PyObject *window)
{
    Array *self = array_alloc(type, true);
    if (self != NULL) {
        live_arrays++;
        self->storage = Py_NewRef(storage);
        self->window = Py_NewRef(window);
    }
    return (PyObject *)self;
}

/* Return an array of what NumPy made: a fresh ndarray, or a scalar; consumes it. No cycle goes through those: the
   collector, which NumPy's own arrays never meet, has nothing to look for until there is a storage. */
PyObject *array_made_of(PyTypeObject *type, PyObject *made)
{
    Array *self = array_alloc(type, (PyObject *)type != hooks->array);
    if (self == NULL) {
        Py_DECREF(made);
        return NULL;
    }
    live_arrays++;
    self->window = Py_NewRef(Py_None);
    self->made = made;
    return (PyObject *)self;
}

/* Give an array that NumPy made a storage. Where memory is out it has none, and no error is set. */
void array_store(Array *self)
{
    PyObject *type, *error, *trace;
    bool seen = PyArray_CheckExact(self->made) && Py_REFCNT(self->made) > 1; /* by whom its bytes were given (exported) */
    PyObject *made = Py_NewRef(self->made);
    PyErr_Fetch(&type, &error, &trace);
    PyObject *array = PyArray_CheckExact(made) ? Py_NewRef(made) : PyArray_FromScalar(made, NULL);
    Value *value = array == NULL ? NULL : fresh_value(array);
    PyObject *storage = value == NULL ? NULL : storage_new(value);
    if (storage != NULL && self->storage == NULL) { /* the collector may have run code that asked, too */
        ((Data *)value->data)->shared = seen;
        self->storage = Py_NewRef(storage);
        join_writing((Storage *)storage, made);
        Py_CLEAR(self->made);
        if (!PyObject_GC_IsTracked((PyObject *)self)) {
            PyObject_GC_Track(self);
        }
    }
    Py_XDECREF(storage);
    Py_XDECREF((PyObject *)value);
    Py_XDECREF(array);
    Py_DECREF(made);
    PyErr_Restore(type, error, trace);
}

PyObject *array_new(PyTypeObject *type, Value *value)
{
    PyObject *storage = storage_new(value);
    PyObject *self = storage == NULL ? NULL : array_over(type, storage, Py_None);
    Py_XDECREF(storage);
    return self;
}

static PyObject *array_getitem(PyObject *array, PyObject *key)
{
    PyObject *result = once_getitem(array, key);
    return result != NULL || PyErr_Occurred() ? result : ask_array_hook(hooks->getitem, "getitem", array, key, NULL);
}

static int array_setitem(PyObject *array, PyObject *key, PyObject *item)
{
    if (item == NULL) {
        PyErr_SetString(PyExc_ValueError, "cannot delete array elements");
        return -1;
    }
    int done = once_setitem(array, key, item);
    if (done == 0) {
        PyObject *nothing = ask_array_hook(hooks->setitem, "setitem", array, key, item);
        done = nothing == NULL ? -1 : 1;
        Py_XDECREF(nothing);
    }
    return done < 0 ? -1 : 0;
}

/* Who asks whether an array is a sequence (pandas: if not, it takes it for a scalar) looks here. */
static PyObject *array_item(PyObject *self, Py_ssize_t index)
{
    PyObject *key = PyLong_FromSsize_t(index);
    if (key == NULL) return NULL;
    PyObject *item = PyObject_GetItem(self, key);
    Py_DECREF(key);
    return item;
}

/* ``operator.concat`` asks for this, and so does ``+`` beside what cannot be added: NumPy's own words. */
static PyObject *array_concat(PyObject *self, PyObject *other)
{
    PyErr_SetString(
        PyExc_TypeError, "Concatenation operation is not implemented for NumPy arrays, use np.concatenate() instead. "
                         "Please do not rely on this error; it may not be given on all Python implementations.");
    return NULL;
}

static PySequenceMethods array_sequence = {
    .sq_concat = array_concat,
    .sq_item = array_item,
};

static PyMappingMethods array_mapping = {
    .mp_subscript = array_getitem,
    .mp_ass_subscript = array_setitem,
};

static PyObject *array_ufunc(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    if (nargs < 2) {
        PyErr_SetString(PyExc_TypeError, "__array_ufunc__() takes a ufunc, the name of its method, and its inputs");
        return NULL;
    }
    if (kwnames == NULL && PyUnicode_Check(args[1]) && PyUnicode_CompareWithASCIIString(args[1], "__call__") == 0
        && hooks->at_once != NULL && PyDict_Check(hooks->at_once)
        && PyDict_GetItemWithError(hooks->at_once, args[0]) != NULL) {
        PyObject *result = once_call(args[0], args + 2, nargs - 2, NULL);
        if (result != NULL) {
            return result;
        }
    }
    if (hooks->ufunc == NULL && !PyErr_Occurred()) {
        PyErr_SetString(PyExc_AttributeError, "ufunc");
    }
    if (PyErr_Occurred() || (kwnames != NULL && !floor_passed(args[0], args + 2, nargs - 2))) {
        return NULL;
    }
    PyObject *hook = Py_NewRef(hooks->ufunc), *result = PyObject_Vectorcall(hook, args, nargs, kwnames);
    Py_DECREF(hook);
    return result;
}

static int array_traverse(Array *self, visitproc visit, void *arg)
{
    Py_VISIT(self->storage);
    Py_VISIT(self->window);
    Py_VISIT(self->made);
    return 0;
}

static int array_clear(Array *self)
{
    Py_CLEAR(self->storage);
    Py_CLEAR(self->window);
    Py_CLEAR(self->made);
    return 0;
}

static PyObject *array_made(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *self = PyBaseObject_Type.tp_new(type, args, kwargs);
    if (self != NULL) live_arrays++;
    return self;
}

static void array_dealloc(Array *self)
{
    live_arrays--;
    PyObject_GC_UnTrack(self);
    if (self->weakrefs != NULL) {
        PyObject_ClearWeakRefs((PyObject *)self);
    }
    array_clear(self);
    Py_TYPE(self)->tp_free(self);
}

/* Of the class of arrays itself, whose fields are those above: Python's own way looks for more. */
static void own_array_dealloc(Array *self)
{
    PyTypeObject *type = Py_TYPE(self);
    bool itself = (PyObject *)type == hooks->array; /* or a class of the program's, whose own fields are gone */
    if (itself && type->tp_finalize != NULL && PyObject_CallFinalizerFromDealloc((PyObject *)self) < 0) {
        return; /* a program gave the class one, and it keeps the array */
    }
    live_arrays--;
    PyObject_GC_UnTrack(self);
    if (self->weakrefs != NULL) {
        PyObject_ClearWeakRefs((PyObject *)self);
    }
    array_clear(self);
    if (itself && spares < SPARE) {
        spare[spares++] = (PyObject *)self;
    } else {
        type->tp_free(self);
    }
    Py_DECREF(type);
}

/* Have arrays of a class made in Python end so, where it adds no fields. */
static void ends_at_once(PyTypeObject *type)
{
    if (type->tp_basicsize == sizeof(Array) && type->tp_dictoffset == 0 && type->tp_itemsize == 0) {
        type->tp_dealloc = (destructor)own_array_dealloc;
    }
}

/* Python fills these slots of a class made in Python by the operators of numbers, or leaves them empty. */
static PyObject *array_init_subclass(PyObject *type, PyObject *Py_UNUSED(none))
{
    PySequenceMethods *sequence = ((PyTypeObject *)type)->tp_as_sequence;
    sequence->sq_concat = sequence->sq_inplace_concat = array_concat;
    bool first = hooks->array == NULL || hooks->array == Py_None; /* a program may have a class of that name */
    if (first && strcmp(((PyTypeObject *)type)->tp_name, "Array") == 0) {
        /* Python's own messages name a type by this, and would name none of a class made in Python by its module. */
        ((PyTypeObject *)type)->tp_name = "alight.Array";
        ends_at_once((PyTypeObject *)type);
    }
    Py_RETURN_NONE;
}

static PyObject *array_of(PyObject *type, PyObject *value)
{
    return expect_type(value, &ValueType, "value") ? array_new((PyTypeObject *)type, (Value *)value) : NULL;
}

/* Return the frame of the program's that is under way, from a frame outwards; NULL where there is none. */
static PyFrameObject *frame_of_program(PyFrameObject *frame)
{
    bool known = hooks->inside != NULL && PyTuple_CheckExact(hooks->inside);
    Py_XINCREF(frame);
    while (known && frame != NULL) {
        PyCodeObject *code = PyFrame_GetCode(frame);
        bool inside = false;
        for (Py_ssize_t i = 0; !inside && i < PyTuple_GET_SIZE(hooks->inside); i++) {
            PyObject *prefix = PyTuple_GET_ITEM(hooks->inside, i);
            inside = PyUnicode_Check(prefix) && PyUnicode_Tailmatch(code->co_filename, prefix, 0, PY_SSIZE_T_MAX, -1) == 1;
        }
        Py_DECREF(code);
        if (!inside) break;
        Py_SETREF(frame, PyFrame_GetBack(frame));
    }
    return frame;
}

/* Tell whether a frame waits for others to return. */
static bool is_waiting(PyObject *frame)
{
    PyFrameObject *now = (PyFrameObject *)Py_XNewRef((PyObject *)PyEval_GetFrame());
    bool inner = now != NULL && (PyObject *)now != frame;
    while (now != NULL && (PyObject *)now != frame) Py_SETREF(now, PyFrame_GetBack(now));
    Py_XDECREF(now);
    return inner && now != NULL;
}

/* Tell whether an error came out in a frame. */
static bool was_raised_in(PyObject *error, PyObject *frame)
{
    PyObject *trace = PyException_GetTraceback(error);
    bool found = false;
    while (trace != NULL && !found) {
        found = (PyObject *)((PyTracebackObject *)trace)->tb_frame == frame;
        Py_SETREF(trace, Py_XNewRef((PyObject *)((PyTracebackObject *)trace)->tb_next));
    }
    Py_XDECREF(trace);
    return found;
}

static int raise_owed(void *owed)
{
    PyObject *error = PyTuple_GET_ITEM((PyObject *)owed, 0), *asker = PyTuple_GET_ITEM((PyObject *)owed, 1);
    PyObject *handled = PyErr_GetHandledException();
    Py_XDECREF(handled);
    if (handled == error || was_raised_in(error, asker)) { /* who asked was no NumPy, and raised it */
        Py_DECREF((PyObject *)owed);
        return 0;
    }
    /* What NumPy asks for next are attributes: an error that says that there is none would be lost there. */
    if (PyErr_GivenExceptionMatches(error, PyExc_AttributeError) && is_waiting(asker) && Py_AddPendingCall(raise_owed, owed) == 0)
        return 0;
    PyErr_SetObject((PyObject *)Py_TYPE(error), error);
    Py_DECREF((PyObject *)owed);
    return -1;
}

/* NumPy drops what asking for a buffer raises, and asks otherwise. What says that something in the array failed is
   said again then (`_for_buffer`); what came from outside, of a signal's handler, is raised where the program's
   code runs next. */
static void owe_interrupts(void)
{
    bool owed = is_interrupt();
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    PyErr_NormalizeException(&type, &error, &traceback);
    if (owed) {
        PyFrameObject *asker = frame_of_program(PyEval_GetFrame());
        PyObject *both = PyTuple_Pack(2, error, asker == NULL ? Py_None : (PyObject *)asker);
        Py_XDECREF((PyObject *)asker);
        if (both == NULL) PyErr_Clear();
        else if (Py_AddPendingCall(raise_owed, both) < 0) Py_DECREF(both); /* its queue is full */
    }
    PyErr_Restore(type, error, traceback);
}

/* What the hook said an array of the class itself shows to some code: outside of jitted calls it always says that. */
enum { TOLD = 64 };
static struct {
    PyObject *code, *hook, *shown; /* all kept, so that their addresses stay their own */
} told[TOLD];

/* Return the class that an array shows to the code that runs. */
static PyObject *shown_to(PyObject *self, PyFrameObject *frame)
{
    PyObject *appears = Py_NewRef(hooks->appears), *code = (PyObject *)PyFrame_GetCode(frame), *shown;
    size_t place = ((size_t)code >> 5) % TOLD;
    bool lasting = is_ours(self) && floors->traced == 0;
    if (lasting && told[place].code == code && told[place].hook == appears) {
        shown = Py_NewRef(told[place].shown);
    } else {
        shown = PyObject_CallFunctionObjArgs(appears, (PyObject *)Py_TYPE(self), code, NULL);
        if (lasting && shown != NULL && floors->traced == 0) {
            PyObject *old[] = {told[place].code, told[place].hook, told[place].shown};
            told[place].code = Py_NewRef(code);
            told[place].hook = Py_NewRef(appears);
            told[place].shown = Py_NewRef(shown);
            for (size_t i = 0; i < sizeof(old) / sizeof(old[0]); i++) {
                Py_XDECREF(old[i]);
            }
        }
    }
    Py_DECREF(code);
    Py_DECREF(appears);
    return shown;
}

static PyObject *array_class(PyObject *self, void *closure)
{
    PyFrameObject *frame = hooks->appears == Py_None || hooks->appears == NULL ? NULL : PyEval_GetFrame();
    if (frame == NULL) {
        return Py_NewRef((PyObject *)Py_TYPE(self));
    }
    PyObject *shown = shown_to(self, frame);
    if (shown == NULL && PyErr_ExceptionMatches(PyExc_AttributeError) && is_interrupt()) { /* isinstance would drop it */
        owe_interrupts();
        PyErr_Clear();
        shown = Py_NewRef((PyObject *)Py_TYPE(self));
    }
    return shown;
}

static int array_buffer(PyObject *self, Py_buffer *view, int flags)
{
    view->obj = NULL;
    /* np.ndarray(buffer=…) asks so, gives the buffer back at once and keeps the array for it. */
    bool kept = (flags & PyBUF_ANY_CONTIGUOUS) == PyBUF_ANY_CONTIGUOUS && !(flags & PyBUF_FORMAT);
    PyObject *memory = kept ? NULL : export_at_hand((Array *)self);
    if (memory == NULL) {
        PyErr_Clear();
        memory = PyObject_CallMethod(self, "_for_buffer", NULL);
    }
    if (memory == NULL) {
        owe_interrupts();
        return -1;
    }
    PyArray_Descr *descr = PyArray_DESCR((PyArrayObject *)memory);
    if (descr->type_num == NPY_VOID && !PyDataType_HASFIELDS(descr)) {
        /* NumPy writes plain bytes into a buffer's format as padding, and reads no bytes from it. */
        PyErr_SetString(PyExc_BufferError, "a buffer cannot say that its elements are plain bytes");
        Py_DECREF(memory);
        return -1;
    }
    int status = PyObject_GetBuffer(memory, view, flags);
    if (status == 0 && view->strides != NULL && view->obj == memory) {
        /* NumPy offers strides of its own for axes of length one and for empty arrays, and would
           give them to the ndarray it makes of this buffer. */
        view->strides = PyArray_STRIDES((PyArrayObject *)memory);
    }
    Py_DECREF(memory);
    if (status == 0 && kept) {
        PyObject *told = PyObject_GetAttrString(self, "__array_interface__");
        if (told == NULL) {
            owe_interrupts();
            PyBuffer_Release(view);
            return -1;
        }
        Py_DECREF(told);
    }
    return status;
}

/* Never called, for the memory is an ndarray's. Of objects that have it np.frombuffer keeps the
   buffer; of others it keeps the object alone, and the memory could be given up under it. */
static void array_buffer_released(PyObject *self, Py_buffer *view)
{
}

static PyBufferProcs array_buffer_procs = {
    .bf_getbuffer = array_buffer,
    .bf_releasebuffer = array_buffer_released,
};

static PyMethodDef array_methods[] = {
    {"__array_ufunc__", (PyCFunction)(void (*)(void))array_ufunc, METH_FASTCALL | METH_KEYWORDS,
     "Return what a ufunc's method gives for arrays."},
    {"__init_subclass__", array_init_subclass, METH_NOARGS | METH_CLASS, "Refuse to be joined like a list, as ndarrays do."},
    {"of", array_of, METH_O | METH_CLASS, "Return a new array whose storage starts at ``value``."},
    {NULL},
};

static PyObject *array_get(Array *self, void *name)
{
    storage_of(self);
    PyObject *found = strcmp(name, "storage") == 0 ? self->storage : self->window;
    if (found == NULL) {
        PyErr_SetString(PyExc_AttributeError, name);
    }
    return Py_XNewRef(found);
}

static int array_set(Array *self, PyObject *given, void *name)
{
    storage_of(self);
    bool stored = strcmp(name, "storage") == 0;
    if (given == NULL && (stored ? self->storage : self->window) == NULL) {
        PyErr_SetString(PyExc_AttributeError, name);
        return -1;
    }
    if (stored) {
        Py_CLEAR(self->made);
        Py_XSETREF(self->storage, Py_XNewRef(given));
    } else {
        Py_XSETREF(self->window, Py_XNewRef(given));
    }
    return 0;
}

static PyGetSetDef array_properties[] = {
    {"storage", (getter)array_get, (setter)array_set, "The memory that the array is a view of.", "storage"},
    {"window", (getter)array_get, (setter)array_set, "The view; None: the whole of it.", "window"},
    {"__class__", array_class, NULL,
     "Return the class this array shows to its asker: isinstance looks here after the type itself.", NULL},
    {NULL},
};

PyTypeObject ArrayType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "alight._core._native.ArrayBase",
    .tp_doc = "What every Array is: a storage, and a view of it (None: the whole of it). Operators record.",
    .tp_basicsize = sizeof(Array),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .tp_dealloc = (destructor)array_dealloc,
    .tp_traverse = (traverseproc)array_traverse,
    .tp_clear = (inquiry)array_clear,
    .tp_weaklistoffset = offsetof(Array, weakrefs),
    .tp_as_number = &array_number,
    .tp_as_buffer = &array_buffer_procs,
    .tp_as_mapping = &array_mapping,
    .tp_as_sequence = &array_sequence,
    .tp_richcompare = array_compare,
    .tp_hash = PyObject_HashNotImplemented,
    .tp_methods = array_methods,
    .tp_getset = array_properties,
};

bool array_ready(void)
{
    operators_by_name = PyDict_New();
    PyObject *own = PyDict_New();
    if (operators_by_name == NULL || own == NULL
        || PyDict_SetItemString(own, "operators", operators_by_name) < 0) {
        Py_XDECREF(own);
        return false;
    }
    ArrayType.tp_dict = own;
    ArrayType.tp_new = array_made;
    return PyType_Ready(&ArrayType) == 0;
}
