"""What an entry of the op table is, and how one is declared."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from alight._src.base.hashing import sha256
from alight._src.base.originals import np

Dtype = np.dtype[Any]
# What NumPy's vectorised maths is tested to, from the true value
# (numpy/_core/tests/test_umath_accuracy.py, maxulperr).
NUMPY_ULP = 4.0

# From so many bytes on an array that is updated as a whole is updated where it is. A step more
# takes 15 µs and a version of fewer bytes 400 µs to write (EPYC); from here on memory comes in huge
# pages, and second copies count.
UPDATED_IN_PLACE = 4 << 20


# NumPy computes a dtype's name anew at each reading, and planning reads a dozen for each value. The
# bound keeps structured dtypes made in a loop from piling up.
@lru_cache(maxsize=256)
def dtype_name(dtype: Dtype) -> str:
    """Return the name of a dtype."""
    return dtype.name


@lru_cache(maxsize=256)
def width_in_bits(dtype: str) -> int:
    """Return the bits of an element of a dtype, by its name."""
    return int("".join(c for c in dtype if c.isdigit()) or 8)


Resolver = Callable[[Sequence[Any]], tuple[Dtype, ...]]


class Kind(enum.StrEnum):
    """What sort of thing an op is; groups and costs are formed by it."""

    ELEMENTWISE = "elementwise"
    REDUCTION = "reduction"
    SCAN = "scan"
    VIEW = "view"
    WRITE = "write"
    MOVEMENT = "movement"
    GATHER = "gather"
    SCATTER = "scatter"
    LIBRARY = "library"
    CREATION = "creation"
    COMPOSITION = "composition"  # recorded as the ops that it is composed of


class FlagsRaised(enum.StrEnum):
    """Which floating-point flags the processor raises for an op's body."""

    UNKNOWN = "unknown"
    LIKE_NUMPY = "like NumPy"  # of single and double floats its loop's; of whole numbers none
    NONE = "none"  # whatever the operands, unless they are complex
    CAST = "of a cast"  # of whole numbers none, unless they are made half floats
    MOVE = "of a move"  # none, unless dtypes differ


class Origin(enum.StrEnum):
    """Who answers for an entry of the table."""

    ALIGHT = "alight"  # its tests compare it with the reference
    PROGRAM = "the program"  # so it is compared on each device, the host too, before it is used


class Warns(enum.StrEnum):
    """How NumPy words what it warns of an op."""

    BY_NAME = "by name"  # a category, encountered in its ufunc
    BY_PARTS = "by parts"  # it is composed in Python of calls that warn by their own names
    IN_WORDS = "in words"  # as by parts, and whatever the error state that it found no number


class Op:
    """One entry of the table.

    ``reference(*operands, **attrs)`` runs a node through NumPy. ``body`` is the scalar expression
    of an elementwise op, or what a reduction does to each element first; as a mapping it is chosen
    by dtype (see ``ir.body``). ``combine`` names the binary ufunc that a reduction or scan
    reductions with; ``finish`` makes the result of the reduced ``x`` and the count ``y`` of its
    elements, a float64; as a mapping, by the dtype of ``x``. ``flops`` counts arithmetic for each
    output element (reduction, scan: input element); ``special`` marks a transcendental, which costs
    what the profile says and not a count of flops. ``ulp`` bounds the error of ``body`` in units in
    the last place of the true value; 0 means NumPy's bits; ``plane_ulp`` bounds that of complex
    numbers where real ones have none (of their lengths: how far from NumPy's they are). Where a
    result is what remains of larger terms, ``against(*operands)`` gives these, and theirs are the
    units; ``plane_loss(*operands)`` gives how many units each of a complex result's bound is.
    ``bound(n)`` bounds a reduction of n elements, in units of eps times the sum (product: the
    product) of the absolute values.

    ``raises`` are the floating-point errors that NumPy may warn of when it computes the op on
    single and double floats, underflows and signalling NaNs (which no arithmetic makes) apart;
    where it is None, any. ``signs`` says how results tell that: a NaN that comes of none is an
    invalid operation, an infinity that comes of finite operands in these places an overflow or a
    division by zero; of a reduction, infinities among the elements, unless something overflowed.
    Where it is None they do not tell. ``flags`` says what our body raises, ``missed_fp_errors`` are
    the errors of which it may leave no flag though NumPy warns, and ``warns`` says how NumPy words
    it. ``called`` is the name in its warnings: by default that of the ufunc, or of the ufunc's
    method that reduces with it.

    ``lower(*args, **kwargs)`` records a composition: it is ``reference`` written with ops of the
    table, and returns NotImplemented for arguments that it leaves to ``reference``.
    ``reference_ulp`` says how far ``reference`` itself is from the true value: units in the last
    place, or a function of the operands that gives them. ``origin`` says who answers for the entry,
    and ``key`` is its name where code is kept: a program's ops are another in each program.
    """

    __slots__ = (
        *("against", "body", "bound", "called", "combine", "finish", "flags", "flops", "key"),
        *("kind", "lower", "name", "nin", "nout", "origin", "plane_loss", "plane_ulp", "raises"),
        *(
            "reference",
            "reference_ulp",
            "resolve",
            "same",
            "signs",
            "special",
            "ulp",
            "missed_fp_errors",
        ),
        *("__weakref__", "warns", "weak"),
    )

    def __init__(
        self,
        name: str,
        kind: Kind,
        reference: Callable[..., Any],
        *,
        body: str | Mapping[str, str] | None = None,
        combine: str | None = None,
        finish: str | Mapping[str, str] | None = None,
        flops: float = 1.0,
        special: bool = False,
        ulp: float = 0.0,
        plane_ulp: float = 0.0,
        against: Callable[..., Any] | None = None,
        plane_loss: Callable[..., Any] | None = None,
        bound: Callable[[int], float] | None = None,
        nin: int = 1,
        nout: int = 1,
        resolve: Resolver | None = None,
        raises: str | None = None,
        signs: tuple[int, ...] | None = None,
        flags: FlagsRaised = FlagsRaised.UNKNOWN,
        warns: Warns = Warns.BY_NAME,
        called: str | None = None,
        missed_fp_errors: str = "",
        lower: Callable[..., Any] | None = None,
        reference_ulp: float | Callable[..., Any] = NUMPY_ULP,
        origin: Origin = Origin.ALIGHT,
    ) -> None:
        self.name = name
        self.kind = kind
        self.reference = reference
        self.body = body
        self.combine = combine
        self.finish = finish
        self.flops = flops
        self.special = special
        self.ulp = ulp
        self.plane_ulp = plane_ulp
        self.against = against
        self.plane_loss = plane_loss
        self.bound = bound
        self.nin = nin
        self.nout = nout
        self.resolve = resolve
        self.raises = None if raises is None else frozenset(raises.split())
        self.signs = signs
        self.flags = flags
        self.warns = warns
        self.called = called or _called(name, kind, reference)
        self.lower = lower
        self.reference_ulp = reference_ulp
        self.origin = origin
        self.key = name
        if origin is Origin.PROGRAM:
            self.key = f"{name}#{sha256(repr((body, self.special, ulp)).encode())[:16]}"
        # What of a transcendental underflows on its way is every library's own: of exp(-1000) NumPy
        # warns where we have a zero that was never multiplied.
        self.missed_fp_errors = frozenset(
            (*missed_fp_errors.split(), *(["under"] if special else []))
        )
        # Layouts for which this op, on operands all of that layout, gives the layout beside it
        # without casts: what the core's fast way looks at. Filled while recording.
        self.same: dict[Any, Any] = {}
        # The same for one operand of a layout and one Python scalar: by (layout, type) or (type,
        # layout), in the order of the operands, the result's layout and the 0-d layout the scalar
        # comes in.
        self.weak: dict[Any, tuple[Any, Any]] = {}

    def __repr__(self) -> str:
        return f"Op({self.name})"

    def ulp_on(self, dtype: Any) -> float:
        """Return the bound of ``body`` on a dtype; of complex numbers in ulp of the absolute value,
        and three more: parts are products of what real bodies give, large ones of a square."""
        if np.dtype(dtype).kind != "c":
            return self.ulp
        return self.plane_ulp or (self.ulp + 3 if self.ulp else 0.0)

    def plane_unit(self, operands: Sequence[Any], result: Any) -> Any:
        """Return what the bound of complex results is in units of."""
        with np.errstate(all="ignore"):
            unit = np.spacing(np.abs(result))
            return unit if self.plane_loss is None else unit * self.plane_loss(*operands)

    @property
    def ulp_from_numpy(self) -> float:
        """Return how far from NumPy's results ours may be, in units in the last place, where that
        is the same for all operands."""
        return self.ulp + NUMPY_ULP if self.ulp else 0.0

    def ulp_from_reference(self, operands: Sequence[Any]) -> Any:
        """Return how far from the reference's results for these operands ours may be, in units in
        the last place: one number, or one for each element."""
        if not self.ulp:
            return 0.0
        if not callable(self.reference_ulp):
            return self.ulp + self.reference_ulp
        with np.errstate(all="ignore"):
            return self.ulp + np.fmax(self.reference_ulp(*operands), 0)


def _called(name: str, kind: Kind, reference: Callable[..., Any]) -> str:
    """Return what NumPy calls an op in its warnings, unless the table knows better."""
    if kind is Kind.REDUCTION:
        return "reduce"
    if kind is Kind.SCAN:
        return "accumulate"
    return reference.__name__ if isinstance(reference, np.ufunc) else name


OPS: dict[str, Op] = {}
# The ops that ufuncs define, by these.
UFUNCS: dict[Any, Op] = {}


def declare(name: str, kind: Kind, reference: Callable[..., Any], **fields: Any) -> Op:
    """Return the op of that name, now in the table; a ufunc tells its own nin and nout."""
    if name in OPS:
        raise ValueError(f"op {name!r} is declared twice. Fix: keep one declaration.")
    if kind is Kind.ELEMENTWISE and isinstance(reference, np.ufunc):
        fields.setdefault("nin", reference.nin)
        fields.setdefault("nout", reference.nout)
    op = Op(name, kind, reference, **fields)
    enter(op)
    return op


def enter(op: Op) -> None:
    """Put an op into the table, in the place of another of its name or ufunc."""
    OPS[op.name] = op
    if isinstance(op.reference, np.ufunc):
        UFUNCS[op.reference] = op
