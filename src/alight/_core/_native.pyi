"""The native core, as Python sees it: what its classes and functions mean is said here, once.

Four small classes are what one recorded call is made of. A ``Layout`` says how bytes are read
(dtype, shape, strides) and is interned, so layouts compare by identity. A ``Value`` is one
immutable result: pending (it knows its op and operands) or concrete (it knows its ``Data``).
``Data`` is the bytes of one version, with a copy in each memory space that has one. A ``Storage``
names the current version; every view of an array shares it, so a write, which makes a new version
and rebinds the storage, is seen by all of them.
"""

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from types import CodeType, EllipsisType, ModuleType
from typing import Any, ClassVar
from weakref import ref

import numpy as np

SOURCES: str  # the digest (built.py) of what it was built of

# ---------------------------------------------------------------- layouts and views

class Layout:
    """How bytes are read as an array: dtype, shape and strides in bytes. Interned: compare with
    ``is``."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    ndim: int
    size: int
    itemsize: int
    nbytes: int
    c_contiguous: bool
    dense: bool
    ordinary: bool  # the strides are those of a fresh C-order array, axes of length one included
    @property
    def probe(self) -> np.ndarray[Any, Any]:
        """Return an array of this layout that has no elements: index or transpose it, never read
        it."""

def make_layout(
    dtype: np.dtype[Any], shape: tuple[int, ...], strides: tuple[int, ...] | None = None
) -> Layout:
    """Return the one layout with these fields; strides default to C order."""

def layout_of(array: np.ndarray[Any, Any] | ArrayBase) -> Layout:
    """Return the layout of an Array or ndarray."""

def native(dtype: np.dtype[Any]) -> bool:
    """Tell whether alight computes with this dtype; all others are plain ndarrays."""

class View:
    """A window on a storage: a layout, the byte it starts at, and whether it may be written."""

    layout: Layout
    offset: int
    writeable: bool
    def __init__(self, layout: Layout, offset: int, writeable: bool = True) -> None: ...
    def __eq__(self, other: object) -> bool: ...
    def __hash__(self) -> int: ...

# ---------------------------------------------------------------- bytes

class Data:
    """The bytes of one version: on the host (``array``, and ``raw`` as plain bytes), in other
    spaces, or both.

    ``array`` is a dense ndarray that nobody else holds, or, when ``foreign``, memory that others
    can see. ``remote`` maps a memory space to that space's own buffer.
    """

    array: np.ndarray[Any, Any] | None
    owner: np.ndarray[Any, Any] | None
    layout: Layout
    remote: dict[str, Any] | None
    foreign: bool
    # Set by exports: others may see the memory; ``exported`` says whether they still do.
    shared: bool
    nbytes: int
    # Nobody ever writes it, nor a copy of it in another space: launches may have its bytes instead
    # of where they lie.
    fixed: bool
    writing: int  # by how many, at once, on the host
    def __init__(
        self,
        layout: Layout,
        array: np.ndarray[Any, Any] | None = None,
        owner: np.ndarray[Any, Any] | None = None,
        foreign: bool = False,
    ) -> None: ...
    @property
    def raw(self) -> np.ndarray[Any, Any]:
        """Return the host copy as a 1-d uint8 array over the same memory."""

    @property
    def address(self) -> int:
        """Return the address of the host copy."""

    @property
    def exported(self) -> bool:
        """Tell whether anyone outside can see the host memory: an ndarray, a buffer, a DLPack
        capsule.

        While ``jit`` holds a caller's array (foreign, not shared) nobody looks.
        """

    def seen_outside(self) -> bool:
        """Tell whether references to the host memory exist beyond those held here.

        NumPy keeps the owner of the memory as the base of every view, so its reference count tells.
        """

def fresh_data(layout: Layout) -> Data:
    """Return data of a dense layout, uninitialised, in memory of its own."""

def keep_bytes(most: int) -> None:
    """Keep at most so many bytes of memory that came back for later results."""

def keep_only(beyond: int) -> None:
    """Give the system what is kept for later results beyond so many bytes."""

def give_back_heap() -> None:
    """Give the system the pages of the C library's heap that hold nothing."""

def kept_bytes() -> int:
    """Return how many bytes are kept for later results."""

def living_bytes() -> tuple[int, int]:
    """Return the bytes that results have, and the most that they had since this was asked last."""

def memory_limits() -> tuple[int, int]:
    """Return the bytes that the limits of this process and of its control groups leave, and the
    least of these limits; more than any memory has where there is none."""

def copy_where(target: Any, source: Any, casting: str, mask: Any) -> None:
    """Put elements into a target where a mask is true, as ``np.copyto`` does."""

# ---------------------------------------------------------------- values and storages

class Value:
    """One immutable result. Pending: ``op`` and ``operands`` say how to compute it. Concrete:
    ``op`` is None and ``data``/``offset`` say where its bytes are; a constant has neither and
    keeps a 0-d array in ``attrs``. ``error``: what it failed with, or the type of that once it was
    raised. What failed is tried again only where it is asked for, or something made of it.
    """

    op: Any
    operands: tuple[Value, ...]
    attrs: Any
    layout: Layout
    data: Data | None
    offset: int
    seq: int
    site: Any
    errstate: Any
    error: BaseException | type[BaseException] | None
    def __init__(
        self, op: Any, operands: tuple[Value, ...], attrs: Any, layout: Layout, site: Any = None
    ) -> None: ...
    def bind(self, data: Data, offset: int) -> None:
        """Make the value concrete: these bytes, from this offset on."""

    def bind_written(
        self, data: Data, offset: int, write: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> Any:
        """Call a function that writes into these bytes, and bind the value to them if it returns:
        nothing can interrupt between its end and the binding, so that what has been written in
        place is not written twice."""

class Storage:
    """The current version of some memory. ``lease`` is what is known of it while ``jit`` has it
    from its caller; ``members`` are the caller's ndarrays in it, each with a reference to the array
    for it."""

    value: Value
    lease: Any
    members: Sequence[tuple[ref[Any], np.ndarray[Any, Any]]]
    def __init__(self, value: Value) -> None: ...
    def rebind(self, value: Value) -> None:
        """Make ``value`` the current version, whatever that is now."""

    def replace(self, old: Value, value: Value) -> bool:
        """Make a value that was made of ``old`` the current version, and return True; False, with
        nothing done, where another thread has written since, or others were given its memory."""

    def open(self) -> None:
        """Note, in one's turn, that the current bytes are written from now on."""

class Turn:
    """The turn to write at once into storages: until it ends no other thread does, or makes
    another version of one of them current."""

    def __init__(self, *storages: Storage) -> None: ...
    def __enter__(self) -> None:
        """Wait until no other thread has it."""

    def __exit__(self, *error: object) -> None:
        """End it."""

def pending_storages() -> list[Storage]:
    """Return the live storages whose version is pending, oldest first."""

def sole(value: Value, held: int, data_held: int = 0) -> bool:
    """Tell whether nobody else needs a concrete value's bytes: ``value`` has only ``held``
    references besides one (the caller's name for it, or the storage it was just read from), and
    its data only ``data_held`` besides the value's own."""

def uses_within(
    old: Value,
    values: list[Value | None],
    nodes: Sequence[int],
    outputs: Sequence[int],
    target: Value,
) -> int | None:
    """Return how many operands a value is of what a launch's ``nodes`` were recorded with, and of
    the pending versions between that these lead to; None where somebody else holds one of all
    those, who would make it anew from the old bytes. The list of values, the others of them and
    ``target`` may hold them; ``outputs`` are about to be bound, whoever holds them."""

# ---------------------------------------------------------------- requests

class Key:
    """The structure of a request: equal for equal work on equal layouts.

    ``leaves``: layout, memory spaces that have the bytes, base (the first leaf in the same memory:
    what is written in place depends on it), and whether it is as large as its memory (whose size
    is not known otherwise). ``nodes``: op, operands by number, attrs and layout of each pending
    value, numbered after the leaves. ``outputs``: the requested values, those asked for first, of
    which the host is about to ``read`` so many. ``stamp``: of the policy. It holds all that it
    names, so that what is equal to it is no other's later namesake.
    """

    leaves: tuple[Any, ...]
    nodes: tuple[Any, ...]
    outputs: tuple[int, ...]
    read: int
    stamp: int
    @property
    def count(self) -> int:
        """Return how many leaves there are."""

    def __hash__(self) -> int: ...
    def __eq__(self, other: object) -> bool: ...

def request(
    roots: list[Value],
    read: bool,
    stamp: int,
    passing: Storage | None = None,
    connected: bool = True,
) -> tuple[Key, list[Value]] | None:
    """Return the key of a request and its leaves and pending values by number; None where nothing
    is pending.

    ``connected``: every live pending value that shares pending work with the roots is requested,
    too, but for that of ``passing``, which nobody will ask for any more; what is left pending is
    what the floor counts from here on. ``read``: the host is about to read the roots.
    """

# ---------------------------------------------------------------- what recording asks

# The policy in force (alight._src.config.policy.Policy) or None for the default one. It lives here
# because recording must look at its floor.
POLICY: ContextVar[Any]

class Hooks:
    """What the core calls when its fast way does not apply; ``record.array`` fills these in.

    The core has NumPy do small work on bytes that are at hand without asking (ufuncs of
    ``at_once``, indexing, in-place operators), as the hooks would: unless the call comes from
    files under the folders ``inside``, or a thread is traced.
    """

    # `alight run`: the class an array shows to the code that asks; None: always its own.
    appears: Callable[[type[ArrayBase], CodeType], type] | None
    array: type[ArrayBase]  # the public class, for results made below it
    binary: Callable[[Any, Any, Any], Any]
    unary: Callable[[Any, Any], Any]
    in_place: Callable[[Any, Any, Any], Any]
    getitem: Callable[[Any, Any], Any]
    setitem: Callable[[Any, Any, Any], None]
    ufunc: Callable[..., Any]
    at_once: dict[Any, Any]
    # what NumPy made of its arguments that stood for those given, where it may rest on these
    taken: Callable[[Any, tuple[Any, ...], tuple[Any, ...], bool], Any]
    wrap: Callable[[Any], Any]  # an ndarray or NumPy scalar as what the front door promises
    inside: tuple[str, ...]
    flush: Callable[[], None]
    settle: Callable[[], None]  # find `Floor.record_floor`, for `Floor.here`
    large: Callable[[], object]  # once a wait: NumPy worked on an array of ``Floor.kept`` elements
    errstate: Callable[[], Any]  # the state to record under, or None: for `recording_errstate`

hooks: Hooks

def recording_errstate() -> Any:
    """Return the floating-point error state to record an op under; None where NumPy must act at
    the call."""

class Floor:
    """What recording looks at: when to leave work to NumPy, and when enough is pending.

    ``record_floor``: result elements below which an op on concrete operands is left to NumPy at
    once (a policy in force has its own; -n: not known yet, and not asked for by new arrays of
    less than n elements). ``auto``: what the measured profile says of it. ``count`` and
    ``pending``: ops and result elements recorded since the last flush. Past ``limit`` ops a flush
    is due when the ``anchor`` call site comes round again, so that a loop is cut at the same place
    each time and its plan is found again (an anchor that has not come by twice ``limit`` is of a
    loop that is over, and gives way); past 16 times that, or past ``budget`` elements, at once.
    ``scalars``: `alight run`, where small results are plain ndarrays and NumPy scalars, unless this
    thread ``records`` a jitted call. ``traced``: how many calls are followed in what they read
    (`jit`). ``kept``: while all work waits, the
    elements from which on a new array is alight's; else 0. ``paces``: by name, how many elements
    of it NumPy does in the time of one of an addition (of ``addition`` seconds), a double for
    each of its type numbers: of whole arrays, and along an axis. ``judging``: call sites below the floor whose work is
    recorded on trial (sites.c). ``rehearses``: NumPy is to stand in for the kernels of the request
    that was asked about last.
    """

    record_floor: int
    auto: int
    budget: int
    limit: int
    count: int
    pending: int
    anchor: tuple[Any, int] | None
    scalars: bool
    records: bool
    traced: int
    kept: int
    begins: float
    addition: float
    judging: int
    rehearses: bool
    paces: dict[Any, bytearray]
    def paced(self, name: str, array: Any, more: int, least: int, /) -> int:
        """Return the elements below which a reduction, by its name, of an array that was given so
        many arguments more is NumPy's, where those of an addition are ``least``."""

    def wait(self, seconds: float) -> None:
        """Leave ops on concrete operands to NumPy, however large, for so many seconds from now on;
        arrays that were to be alight's go on to be. 0: no longer."""

    def here(self) -> int:
        """Return the result elements below which an op on concrete operands is left to NumPy at
        once, under the policy in force."""

    def waits(self) -> bool:
        """Tell whether all work is left to NumPy for a while."""

    def expected(self, values: list[Any], inputs: int, /) -> float:
        """Return the seconds that NumPy took at the sites of a request's values, of which the first
        so many are inputs; 0.0 where no site of theirs is to be judged."""

    def took(self, seconds: float, steps: float, least: float, cold: bool, /) -> bool:
        """Note what that request took and its steps did, what kernels are predicted to take at
        least, and whether NumPy stood in for them; tell whether its sites have lost with kernels
        that have run."""

    def planned(self, values: list[Any], inputs: int, vain: bool, /) -> None:
        """Note of a request's values, of which the first so many are inputs, whether its plan
        leaves all of it to NumPy: call sites of which only such ones came are NumPy's at once, up
        to as many elements."""

    def replan(self) -> None:
        """Have those sites recorded again: plans may become others."""

    def shut(self, kept: bool, /) -> None:
        """Leave the sites that have lost to NumPy; ``kept``: go on with them."""

    def sites(
        self,
    ) -> list[tuple[CodeType, int, int, int, float, str, bytearray | None, float]]:
        """Return of each call site that NumPy had larger work of: code, instruction, runs, elements
        of the latest, seconds, who has it: numpy, open (on trial), recorded or lost; the op's row
        of ``paces``, where it has one, and the seconds that all runs were predicted to take."""

    def forget_sites(self) -> None:
        """Forget what is known of call sites."""

    def due(self, code: Any, instruction: int) -> bool:
        """Tell whether everything pending should be evaluated before an op of this site is
        recorded."""

floor: Floor

# ---------------------------------------------------------------- arrays, and what makes them

class ArrayBase:
    """What every Array is: a storage, and a view of it (None: the whole of it). Operators
    record."""

    storage: Storage
    window: View | None
    operators: ClassVar[dict[str, Any]]
    __hash__: ClassVar[None]  # type: ignore[assignment]
    def __getitem__(self, key: Any) -> Any: ...
    def __setitem__(self, key: Any, item: Any) -> None: ...
    def __delitem__(self, key: Any) -> None: ...
    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any: ...
    @classmethod
    def of(cls, value: Value) -> Any:
        """Return a new array whose storage starts at ``value``."""

    def __buffer__(self, flags: int, /) -> memoryview: ...

def set_operators(table: dict[str, Any]) -> None:
    """Tell the core which op each operator records."""

def take_over(array: np.ndarray[Any, Any]) -> Value | None:
    """Return a value that takes over a fresh dense ndarray with memory of its own; None for
    others."""

def fresh_array(made: Any) -> Any:
    """Return an array of ours that takes over a fresh ndarray or a NumPy scalar; None where
    wrapping takes more."""

class Items:
    """An iterator over an array: of as many items as there are when their turn comes."""

    def __iter__(self) -> Items: ...
    def __next__(self) -> Any: ...

def items_of(array: ArrayBase) -> Any:
    """Return an iterator over an array; NotImplemented of scalars, and where it has no axes."""

def items_count(array: ArrayBase) -> Any:
    """Return the length of an array's first axis; NotImplemented where it has none."""

def exported(array: ArrayBase) -> Any:
    """Return an ndarray that shares an array's memory; NotImplemented where that takes more than a
    look."""

def at_hand(array: ArrayBase) -> np.ndarray[Any, Any] | None:
    """Return an ndarray over an array's bytes where the host has them and nobody follows reads,
    else None."""

def view_of(
    cls: type[ArrayBase],
    array: ArrayBase,
    window: np.ndarray[Any, Any],
    probe: np.ndarray[Any, Any],
) -> Any:
    """Return the view of an array that an ndarray made from its layout's probe says."""

class UfuncBase:
    """What a ufunc of the array namespace is called by: ``_numpy`` at once, or ``_call``."""

    _numpy: np.ufunc
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

def Creation(
    function: Callable[..., Any],
    settle: Callable[[Any], Any],
    convert: Callable[..., Any] | None = None,
    fills: float | EllipsisType | None = None,
    writing: Callable[..., Any] | None = None,
) -> Any:
    """Return a function that makes arrays, with ``settle`` called on large results that nobody
    else holds.

    ``convert`` is called instead where the first argument is an array of ours. ``fills`` says what
    the function fills a shape with when it is given nothing else (Ellipsis: the second argument),
    so that the core can do it for small shapes. ``writing`` is called instead where any argument
    is an array of ours: the function may write into it.
    """

def Public(
    function: Callable[..., Any],
    erred: Callable[[BaseException], Any],
    once: Callable[..., Any] | None = None,
    view: Callable[..., Any] | None = None,
    change: Callable[..., Any] | None = None,
    operands: int = 1,
    pace: bytearray | None = None,
    ask: Callable[..., Any] | None = None,
    first: Callable[[Any], Any] | None = None,
    draw: Callable[..., Any] | None = None,
) -> Any:
    """Return a function or method as programs have it: what it raises is shown to ``erred`` on its
    way out, and goes on with the traceback that it has then.

    The core calls ``once``, NumPy's own, where all is at hand and small: it reads arrays in the
    first ``operands`` of its arguments, and writes into none. Or ``view``, which makes a view of
    its first argument, where that lies in C order; or ``change``, which changes its first one.
    ``pace``, a row of `Floor.paces`, says what is small to ``once``. Or ``ask``, which reads its
    first argument, whatever its size, and gives what is no array; a type: where that is a number.
    ``first`` is called with an array that is the only argument, and may give NotImplemented.
    Or ``draw``, which makes something new where no argument behind the first ``operands`` is an
    array.
    """

class Namespace(ModuleType):
    """A module that shows the names of another one as they are now, and assigns there.

    ``stand_ins`` has, by name, an object of that module's and what is shown in its place for as
    long as the module has that very object under the name; or a function that is called with what
    is found there, and returns what is shown.
    """

    def __init__(self, real: ModuleType, stand_ins: dict[str, Any]) -> None: ...

MOST_INPUTS: int  # of code that has a gate

class Gate:
    """Stands at the beginning of a function's body, or before statements, and may answer for them.

    ``gate != gate`` tells whether to call it, with every argument by position; it gives itself where
    the body is to go on. Of statements it tells whether they have been run. ``+gate`` is no class of
    errors: the error that is handled loses the frame that asks. ``origin``: where the code is found
    that has no gate; a gate without one stays closed. ``operations``: how many stand in the body.
    ``source`` and ``inputs``: what it computes from beside its arguments (jit/liftable.py). It is
    marshalled as no bytes, which equal themselves.
    """

    origin: Any
    answers: CallGuard | None
    source: int
    inputs: tuple[str, ...]
    def __init__(
        self,
        origin: Any = None,
        operations: int = 0,
        source: int = 0,
        inputs: tuple[str, ...] = (),
    ) -> None: ...
    def __invert__(self) -> Gate: ...
    def __call__(self, *args: Any) -> Any: ...
    def __pos__(self) -> tuple[()]: ...
    def open(
        self,
        guard: CallGuard,
        names: dict[str, Any],
        roles: tuple[tuple[Any, ...], ...] = ...,
        picked: tuple[int, ...] = ...,
        numbers: Callable[..., tuple[Any, ...]] | None = None,
        stored: tuple[str, ...] | tuple[int, ...] = ...,
        left_by: Callable[[Gate, BaseException, tuple[Any, ...]], tuple[Any, ...]] = ...,
    ) -> None:
        """Have a guard answer calls that find these globals.

        ``roles``: of each input () for anything, (type,) for this very type, (None, object) for
        this very object. The guard gets the ``picked`` ones. What is ``stored``: what ``numbers``
        returns for all inputs, then the guard's results behind its first; where it raises,
        ``left_by`` tells what the body had stored before that, the gate for what it had not.
        """

    def close(self, calls: int) -> None:
        """Have nobody answer, and so many calls pass before one is looked at."""

def take_functions(
    take: Callable[[Gate, tuple[Any, ...], dict[str, Any]], None] | None, seconds: float, whole: float
) -> None:
    """Have ``take`` find guards for code whose runs have taken NumPy so many seconds, by prediction,
    once those of all code with gates have taken so many as a whole; None: nobody does."""

class Border:
    """Calls, stores and returns of the program's code; true while an Array may live.

    ``judge`` tells whose code something is, ``describe`` what objects of a class are; ``enter``
    gives what is handed over in place of a call's arguments and ``leave`` what is given back,
    ``give`` what is returned or stored; ``installed`` gives the border in another process.
    ``stand_ins`` has what is called in the place of packages' functions that are ops, and
    ``inside`` gives what runs in place of the program's own function while `jit` records. There is
    no frame between who calls and what is called.
    """

    slice: ClassVar[type]
    out: int
    inside: Callable[..., Any] | None
    stand_ins: dict[Any, Callable[..., Any]] | None
    def __init__(
        self,
        judge: Callable[[Any], int],
        describe: Callable[[type], int],
        enter: Callable[..., Any],
        leave: Callable[[Any, Any], Any],
        give: Callable[[Any], Any],
        installed: Callable[[], Any],
    ) -> None: ...
    def __bool__(self) -> bool: ...
    def __call__(self, callee: Any, /, *args: Any, **kwargs: Any) -> Any: ...
    def give(self, value: Any) -> Any:
        """Return what is returned or yielded, as who asked for it may have it."""

    def set_item(self, value: Any, container: Any, key: Any) -> None:
        """Store a value in a container under a key."""

    def set_attribute(self, value: Any, holder: Any, name: str) -> None:
        """Store a value in an object under a name."""

    def swap(self, holder: Any, place: Any, old: Any, new: Any) -> None:
        """Exchange an item of a list or a dict for another, where it still is."""

    def operate(self, which: int, one: Any, other: Any) -> Any:
        """Do an operation on two operands, by its number (``OPERATORS`` of jit/border.py)."""

    def forget(self) -> None:
        """Judge anew whose code is whose."""

# ---------------------------------------------------------------- launches

OPERANDS: int  # of a kernel, that the core's calls and launches take

class KernelCall:
    """A generated kernel of the host that runs straight on recorded values."""

    in_place: bool  # whether the last run wrote over an operand
    def __init__(
        self,
        entry: tuple[Any, ...],
        keep: Any,
        inputs: tuple[int, ...],
        outputs: tuple[int, ...],
        nodes: tuple[int, ...],
        layouts: tuple[Layout, ...],
        elements: int,
        over: tuple[int, int] = (-1, -1),
    ) -> None: ...
    def run(self, values: list[Any]) -> float | None:
        """Run the kernel on the values of a list, bind its results, and return the seconds; None,
        with nothing done, where that takes more than this knows. Where the result of ``over`` took
        the memory of its operand and the kernel has something to warn of, they are negative."""

    def watch_flags(self, state: Any, watched: bool) -> None:
        """Serve values recorded under this error state, and leave to others what it has to warn of
        where ``watched``."""

class Entry:
    """Guards, and what to do where they hold: launch kernels, or call a function.

    ``pattern`` says what each argument is like: an ndarray stands for all of its dtype, shape,
    strides and writeability, a type for all that is of it, (dtype, bits) for ndarrays of so many
    elements, (int, bits) for integers of so many bits, anything else for that very value. An
    ndarray given twice in the pattern must be given twice. ``lookups`` are (dict, name, object),
    (cell, None, object) and (function, name, object), where the name is ``__code__``,
    ``__defaults__`` or ``__kwdefaults__``; ``absent`` stands for no such name. ``contexts`` are
    (variable, default, object); of NumPy's error states another will do that asks for the same.

    ``inputs`` are (position of an argument, offset in bytes from its first element) or (-1,
    address); ``outputs`` are ndarrays that what is made is made like. ``kernels`` run in their
    order: each ``(address or Call, dims, strides, keep, how many of the outputs are there after
    it, operands)``, its operands (place among inputs and outputs, offset in bytes). ``results`` and
    ``scalars`` say which outputs come back, and whether as NumPy scalars; ``form`` is None, tuple
    or list. ``watched``: the ``WATCHED`` of floating-point flags that end the guard's way, to be
    told of elsewhere, unless ``already_shown(flags, *args)``, asked with these bits, says that
    there is nothing to tell. What is called ``looks`` at the arguments itself, and leaves those
    that are not for it to other entries. It answers as many calls as are ``left``, -1 for all.
    """

    left: int
    def __init__(
        self,
        pattern: tuple[Any, ...],
        lookups: Sequence[tuple[Any, Any, Any]],
        absent: object,
        contexts: Sequence[tuple[ContextVar[Any], Any, Any]],
        call: Callable[..., Any] | None = None,
        left: int = -1,
        kernels: Sequence[tuple[Any, int, int, Any, int, Sequence[tuple[int, int]]]] = (),
        inputs: Sequence[tuple[int, int]] = (),
        outputs: Sequence[np.ndarray[Any, Any]] = (),
        results: Sequence[int] = (),
        scalars: Sequence[bool] = (),
        form: type | None = None,
        watched: int = 0,
        already_shown: Callable[..., bool] | None = None,
        looks: bool = False,
    ) -> None: ...
    def matches(self, args: tuple[Any, ...]) -> bool:
        """Tell whether every guard holds for these arguments, here and now."""

    def run(self, args: tuple[Any, ...]) -> Any:
        """Return the results, or NotImplemented where they must be had in another way."""

    def take(self) -> tuple[int, float]:
        """Return the calls since the last time and their seconds, estimated from those that were
        timed."""

ENTRIES: int  # of a guard

class CallGuard:
    """A callable that answers from its entries, and calls ``miss(args, kwargs)`` where none
    does; ``__wrapped__``, where there is one, names the arguments. The first entry whose guards
    hold has the call, but for functions that look at the arguments themselves: where one gives
    NotImplemented, the next may have it."""

    def insert(self, entry: Entry) -> None:
        """Make an entry the first to be tried; that used longest ago, but for one that runs, goes
        where there are too many."""

    def holds(self, entry: Entry) -> bool:
        """Tell whether an entry is among those that are tried."""

    def remove(self, entry: Entry) -> None:
        """Drop an entry; one that is not there is no error."""

    def clear(self) -> None:
        """Drop every entry."""

    def miss(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the result where no entry's guards hold."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

def errors_mask(state: object) -> int:
    """Return what NumPy does about errors in a state, as bits, if states begin with them; -1: it is
    no such state."""

def know_masks(known: bool) -> None:
    """Say whether NumPy's error states begin with their masks (guard.py looks)."""

# ---------------------------------------------------------------- threads

class Launcher:
    """A kernel bound to sizes and strides, called with the addresses of its operands.

    ``kernel`` is the address of ``entry(addresses, dims, strides)``. Parts are runs of ``unit``
    indices of ``axis``; or, with ``combine``, of the reduced elements: then ``extra`` stands behind
    the dims as (first, end, partial), parts leave their states in slots of so many bytes, one for
    each index of the ``kept`` axes and each output, and ``combine(slots, parts, dims, strides,
    addresses)`` makes the results. ``absorbing`` is the first byte of a state that decides the
    whole. Without ``combine``, the last of four ``extra`` becomes the part's first index. ``keep``
    lives as long as the launcher.
    """

    entry: tuple[int, int, int]  # what runs it from C: a function's address and its last arguments
    parts: int  # of the last run
    seconds: float  # what a run on one thread takes; 0 where that is not known
    def __init__(
        self,
        kernel: int,
        dims: Sequence[int],
        strides: Sequence[int],
        inputs: int,
        outputs: int,
        keep: object,
        axis: int = -1,
        unit: int = 0,
        elements: int = 0,
        combine: int = 0,
        kept: int = 0,
        extra: Sequence[int] = (),
        slot: int = 0,
        absorbing: int = -1,
    ) -> None: ...
    def __call__(self, addresses: Sequence[int]) -> None:
        """Run the kernel on the arrays at these addresses."""

def set_threads(threads: int) -> None:
    """Let kernels run on so many threads, the caller's included."""

def set_costs(
    join_seconds: float, wake_seconds: float, join_pair: float = ..., wake_pair: float = ...
) -> None:
    """Say what it takes to share work with all threads where they spin and where they sleep, and
    with one other."""

def rest() -> None:
    """Have threads that spin go to sleep: something else needs the processors."""

def state() -> dict[str, float]:
    """Return what the pool is like now."""

def round_trip(threads: int = ...) -> float:
    """Return the seconds until so many threads (all of them) have met, or 0 where none can."""

def copy(target: int, source: int, nbytes: int, threads: int) -> None:
    """Copy so many bytes to one address from another, on so many threads."""

def foresee(*args: Any) -> list[int]:
    """Return on how many threads each run of a kernel would go, of lists of its seconds on 1, 2,
    4, ... threads, and of the seconds that pass before each."""

# ---------------------------------------------------------------- memory of devices

PIECES: int  # what a shelf keeps

class Stock:
    """How many bytes the shelves of a device hold, and may hold. ``open``: the device can be
    used; what comes back is not kept otherwise."""

    held: int
    most: int
    open: bool
    def __init__(self, most: int) -> None: ...

class Shelf:
    """Pieces of one size that buffers have left, for the next ones."""

    stock: Stock
    nbytes: int
    device: str
    def __init__(self, stock: Stock, nbytes: int, device: str) -> None: ...
    @property
    def count(self) -> int:
        """Return how many there are."""

    def take(self, nbytes: int) -> DeviceBuffer | None:
        """Return a buffer of so many bytes, or None where no piece is here."""

    def put(self, memory: Any) -> None:
        """Keep a piece, where it may be kept."""

    def clear(self) -> None:
        """Give every piece back to whoever gave it."""

class DeviceBuffer:
    """Device memory, at ``memory.ptr``. When it is dropped or freed the memory goes back to whoever
    gave it, unless there is a shelf that keeps what is dropped."""

    address: int
    memory: Any
    nbytes: int
    device: str
    def __init__(
        self, memory: Any, nbytes: int, device: str, shelf: Shelf | None = None
    ) -> None: ...
    def free(self) -> None:
        """Give the memory back."""

class Launches:
    """Launches of one plan that are ready.

    ``driver`` is the addresses of the driver's functions that launch a kernel and a graph, that
    tell the current context, make one current and take it away again, and the context it must be.
    ``table`` is the address and the places of a table that the parameters of the kernels point
    into: what is given (with ``offsets`` in bytes before it), ``windows`` (place of what each looks
    at, bytes), what is made (from ``shelves``, of ``nbytes``), and ``inner`` buffers. ``kernels``
    are (function, blocks, threads, address of the parameters); ``keep`` lives as long.
    """

    inner: tuple[DeviceBuffer, ...] | None  # of what is no result; None: they must be had first
    single: bool  # kernels are launched one by one; else only graphs are
    busy: bool  # a run is going on, which one in its midst leaves to others
    runs: int
    def __init__(
        self,
        stock: Stock,
        driver: tuple[int, int, int, int, int, int],
        stream: int,
        table: tuple[int, int],
        offsets: tuple[int, ...],
        windows: tuple[tuple[int, int], ...],
        shelves: tuple[Shelf, ...],
        nbytes: tuple[int, ...],
        kernels: tuple[tuple[int, int, int, int], ...],
        keep: Any,
    ) -> None: ...
    def launch(self, graph: int) -> int:
        """Launch a graph, or with 0 each kernel, for what the table holds; return the driver's
        status, 0 for success."""

    def keep(self, addresses: tuple[int, ...], graph: int) -> None:
        """Launch this graph where the table holds these addresses."""

    def drop(self, graph: int) -> None:
        """Launch this graph no more; one that is not kept is no error."""

class DeviceCall:
    """A call on arrays that lie on a device: it looks whether the arguments are like those of
    ``pattern`` (a layout for an array, (layout, number) for one with the data of an array before
    it, (scalar,) for a scalar) and lie in ``space``, launches, and gives the results. What takes
    more than that, and the call ``next``, is for ``otherwise``. What has no ``Launches`` is a
    function, from a list of buffers to one; where it raises one of ``failing`` the call is for
    ``otherwise``, too.

    ``constants`` are (data, buffer), behind the arguments; ``order`` says which of these each
    operand is. ``results``: layout, and seconds that bringing it again would take, of all that is
    made. ``form``: (tuple or list, which of them), None for the first one alone, or what else
    ``build(args, values)`` gives a form. ``lock`` is (acquire, release); ``running`` takes a
    ``started`` of ``row`` (graph, told, places; and the error state of the values) with what was
    read and made, ``fresh`` the references and seconds of what was made, up to ``most``.
    """

    calls: int
    next: int
    def __init__(
        self,
        launches: Launches | Callable[[list[Any]], list[Any]],
        pattern: tuple[Any, ...],
        space: str,
        constants: tuple[tuple[Any, DeviceBuffer], ...],
        order: tuple[int, ...],
        results: tuple[tuple[Any, float], ...],
        form: Any,
        lock: tuple[Callable[..., Any], Callable[..., Any]],
        running: Callable[[Any], Any],
        fresh: list[Any],
        most: int,
        failing: tuple[type[BaseException], ...],
        array: type,
        started: type,
        row: tuple[Any, Any, Any, Any],
        build: Callable[[Sequence[Any], Sequence[Any]], Any],
        otherwise: Callable[..., Any],
    ) -> None: ...
    def __call__(self, *args: Any) -> Any:
        """Return the results, or NotImplemented where the arguments do not fit."""
