"""What Python and NumPy ask of a scalar, asked of arrays without axes that stand for one."""

from __future__ import annotations

import array
import collections
import datetime
import decimal
import fractions
import json
import math
import operator
import random
import statistics
import struct
import warnings
from typing import Any

import numpy
import pytest

import alight

# What asks in C for a Python float or one of NumPy's own scalars is not here: json, timedelta,
# Decimal and sleep of floats, numpy.timedelta64. No class can be both that and computed later.
_ASKED = [
    "hash(f)==hash(F)",
    "hash(n)==hash(N)",
    "{n:1}[9]",
    "{9:1}[n]",
    "{f:1}[3.0]",
    "{3.0:1}[f]",
    "f in {3.0}",
    "n in {9}",
    "len({n, i[9], 9})",
    "set([f,f,x[3]])",
    "n in [9]",
    "n in (1,9)",
    "n in range(10)",
    "range(n)",
    "range(k,n)",
    "list(range(n))[k]",
    "[1,2,3,4,5][k]",
    "'abcdefghij'[k]",
    "'ab'*k",
    "[0]*k",
    "(1,)*n",
    "bytes(k)",
    "bin(n)",
    "hex(n)",
    "oct(n)",
    "chr(i[9]+60)",
    "round(f)",
    "round(m,1)",
    "round(n,-1)",
    "divmod(n,k)",
    "pow(n,2)",
    "pow(k,2,3)",
    "abs(f)",
    "int(f)",
    "float(n)",
    "complex(f)",
    "bool(t)",
    "not t",
    "f'{f:.2f}'",
    "f'{n:d}'",
    "f'{n:05d}'",
    "'%d'%n",
    "'%.2f'%f",
    "'%s'%f",
    "'{:>10}'.format(f)",
    "format(n,'x')",
    "str(f)",
    "repr(float(f))",
    "math.sqrt(f)",
    "math.floor(f)",
    "math.ceil(f)",
    "math.trunc(f)",
    "math.isnan(f)",
    "math.gcd(n,k)",
    "math.factorial(k)",
    "math.comb(n,k)",
    "math.isclose(f,3.0)",
    "math.fsum(x)",
    "math.prod([f,f])",
    "math.hypot(f,f)",
    "math.log(n)",
    "math.copysign(f,-1)",
    "math.ldexp(f,k)",
    "sum([f,f])",
    "max(f,2.0)",
    "min([n,k])",
    "sorted([n,k])",
    "datetime.timedelta(days=n)",
    "datetime.timedelta(n,k)",
    "datetime.date(2020,k,n)",
    "datetime.timedelta(days=1)*n",
    "datetime.timedelta(days=1)*f",
    "datetime.timedelta(days=1)/f",
    "decimal.Decimal(n)",
    "decimal.Decimal(int(n))",
    "fractions.Fraction(int(n),int(k))",
    "statistics.stdev([f,x[5]])",
    "json.dumps(float(f))",
    "json.dumps(n)",
    "json.dumps(t)",
    "json.dumps({n:1})",
    "array.array('d',[f,f])",
    "array.array('l',[n])",
    "struct.pack('d',f)",
    "struct.pack('i',n)",
    "struct.pack('?',t)",
    "random.Random(0).sample(range(100),k)",
    "random.Random(0).randint(k,n)",
    "random.Random(0).uniform(f,n)",
    "operator.index(n)",
    "operator.index(f)",
    "isinstance(n,int)",
    "numpy.zeros(n).shape",
    "numpy.zeros((n,k)).shape",
    "numpy.full(k,f)",
    "numpy.arange(n)",
    "numpy.linspace(0,f,k)",
    "numpy.array([f,f,m]).dtype",
    "numpy.array([n,k])",
    "numpy.array([[f,n],[1,2]])",
    "numpy.asarray(f).shape",
    "numpy.isin(X,[f,x[5]])",
    "numpy.isin(X,x[:5])",
    "numpy.searchsorted(X,f)",
    "numpy.datetime64('2020')+n",
    "numpy.timedelta64(int(n),'D')",
    "numpy.float32(f)",
    "numpy.int8(n)",
    "numpy.dtype((numpy.int32,(k,)))",
    "numpy.random.default_rng(0).integers(k,n)",
    "numpy.random.default_rng(0).normal(f,f)",
    "numpy.random.seed(n)",
    "X[n]",
    "X[k:n]",
    "X[int(k)]",
    "X[f>2]",
    "f.item()",
    "n.is_integer() if hasattr(N,'is_integer') else 0",
    "f.is_integer()",
    "f.as_integer_ratio()",
    "n.bit_count()",
    "f.hex()",
    "f.tobytes()",
    "f.dtype",
    "f.astype('f4').dtype",
    "f.real",
    "f.imag",
    "f.conjugate()",
    "c.real",
    "c.imag",
    "f.T",
    "f.ndim",
    "f.shape",
    "f.size",
    "f.nbytes",
    "f.itemsize",
    "f.strides",
    "f.flags.c_contiguous",
    "f.tolist()",
    "f.view('i8')",
    "f.byteswap()",
    "f==3.0",
    "f!=F",
    "f<4",
    "f.__array__()",
    "f.__array__(numpy.float32)",
    "f.data",
    "memoryview(f).nbytes",
    "bytes(f)",
    "bytearray(f)",
    "[10,20,30][k-2]",
    "'x'.ljust(n)",
    "'a,b,c'.split(',',k)",
    "collections.Counter([n,9,k])[9]",
    "collections.deque(maxlen=n).maxlen",
    "open.__name__ * k",
    "list('abcdefghij')[k:n]",
    "slice(k,n).indices(20)",
    "divmod(f,2)",
    "f//2",
    "f%2",
    "-f",
    "+f",
    "~n",
    "n<<1",
    "n&1",
    "n|1",
    "n^1",
    "2**n",
    "2.0**f",
    "k**2",
    "f**2",
    "f is not None",
    "any([t])",
    "all([t])",
    "bool(n)",
    "int('1'*k)",
    "sum(x)",
    "max(x)",
    "list(map(float,x[:3]))",
    "[*x[:2]]",
    "int.from_bytes(bytes(k),'big')",
    "b'ab'*k",
    "complex(f,n)",
    "pow(2,n)",
    "next(iter(range(k,n)))",
    "enumerate(x,n).__next__()[0]",
    "isinstance(hash(c),int)",
    "f == F and hash(f)==hash(F)",
    "numpy.testing.assert_equal(f,3.0)",
    "numpy.testing.assert_allclose(x,X)",
    "numpy.testing.assert_equal(x,x.copy())",
    "numpy.testing.assert_array_equal(i,I)",
]
_MODULES = {
    "array": array,
    "collections": collections,
    "datetime": datetime,
    "decimal": decimal,
    "fractions": fractions,
    "json": json,
    "math": math,
    "operator": operator,
    "random": random,
    "statistics": statistics,
    "struct": struct,
    "numpy": numpy,
}


def _names(make: Any) -> dict[str, Any]:
    x, i = make(numpy.arange(10.0)), make(numpy.arange(10))
    b = make(numpy.array([True, False]))
    parts = {"f": x[3], "s": x.sum(), "m": x.mean(), "n": i.max(), "k": i[4], "t": b.any()}
    return {"x": x, "i": i, "b": b, "X": numpy.arange(10.0), "F": numpy.float64(3), **parts} | {
        "c": (x * 1j)[2],
        "N": numpy.int64(9),
    }


def _outcome(source: str, make: Any) -> Any:
    try:
        made = eval(source, dict(_MODULES), _names(make))
    except Exception as error:
        return type(error).__name__
    if isinstance(made, (list, tuple, set)):
        return type(made).__name__, [numpy.asarray(item).tolist() for item in made]
    held = numpy.asarray(made)
    if held.dtype == object:
        return type(made).__name__, repr(made)
    return held.dtype.name, held.shape, held.tolist()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("floor", [0, 1000])
@pytest.mark.parametrize("source", _ASKED)
def test_scalars_serve_where_numpys_do(source: str, floor: int) -> None:
    expected = _outcome(source, numpy.array)
    with alight.policy(floor=floor):
        assert _outcome(source, alight.asarray) == expected


def test_arrays_are_no_keys() -> None:
    for made in (alight.ones(3), alight.asarray(numpy.array(2.0)), alight.ones((1, 1))):
        with pytest.raises(TypeError, match="unhashable type"):
            hash(made)
    for name in ("hex", "is_integer", "as_integer_ratio"):
        assert not hasattr(alight.ones(3), name) and hasattr(alight.ones(3).sum(), name)


def test_protocols_of_arrays_are_whole() -> None:
    x = alight.arange(6.0).reshape(2, 3)
    theirs = numpy.arange(6.0).reshape(2, 3)
    assert x.to_numpy("f4").dtype == numpy.float32 and x.to_numpy(dtype=int).tolist()[1][2] == 5
    shared, apart = x.to_numpy(), x.to_numpy(copy=True)
    shared[0, 0], apart[0, 1] = 7, 8
    assert float(x[0, 0]) == 7 and float(x[0, 1]) == 1
    with pytest.raises(ValueError, match="copy"):
        x.__array__("f4", copy=False)
    assert x.__array__(copy=False) is not None and x.__array__("f4", copy=None).dtype == "f4"
    assert numpy.from_dlpack(x).shape == (2, 3) and x.__dlpack_device__() == (1, 0)
    assert memoryview(x).shape == (2, 3) and x.ctypes.shape[1] == 3
    assert x.__array_interface__["typestr"] == "<f8"
    for held, own in ((x, theirs), (x.T, theirs.T), (x[:, ::2], theirs[:, ::2])):
        for name in [n for n in dir(type(theirs.flags)) if n[0] != "_"]:
            if name not in ("owndata", "num"):
                assert getattr(held.flags, name) == getattr(own.flags, name), name


@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (0,), (2,)], ids=str)
@pytest.mark.parametrize("kind", [bool, int, float, complex])
def test_what_is_no_scalar_warns_at_the_line_that_takes_it_for_one(kind: Any, shape: Any) -> None:
    """NumPy takes an array with one element for one before 2.4, and warns."""

    def told(array: Any) -> Any:
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            try:
                made = kind(array)
            except (TypeError, ValueError) as error:
                made = type(error), str(error)
        return made, [(w.category, str(w.message), w.filename, w.lineno) for w in found]

    assert told(alight.ones(shape)) == told(numpy.ones(shape))


def test_methods_that_ndarray_has_no_more_are_asked_of_numpy() -> None:
    """NumPy 2.1 has attributes in their place, which say so."""
    for name in ("ptp", "itemset", "newbyteorder"):
        told = []
        for three in (alight.ones(3), numpy.ones(3)):
            with pytest.raises(AttributeError) as caught:
                getattr(three, name)
            told.append(str(caught.value))
        assert ("was removed from" in told[0]) is ("was removed from" in told[1])
    assert alight.ptp(alight.arange(5.0)) == 4 == alight.ptp(alight.arange(1e6)[:5] + 0)


_STATISTICS = {
    "mean": lambda s, x: s.mean([x[0], x[1], x[2]]),
    "mean of an array": lambda s, x: s.mean(x),
    "fmean": lambda s, x: s.fmean([x[0], x[1]]),
    "median": lambda s, x: s.median([x[0], x[1], x[2]]),
    "median of two": lambda s, x: s.median([x[0], x[1]]),
    "mode": lambda s, x: s.mode([x[0], x[1], x[1]]),
    "stdev": lambda s, x: s.stdev([x[0], x[1], x[2]]),
    "pvariance": lambda s, x: s.pvariance([x[0], x[1], x[2]]),
    "variance": lambda s, x: s.variance([x[0], x[1], x[2]]),
    "harmonic mean": lambda s, x: s.harmonic_mean([x[0], x[2]]),
    "geometric mean": lambda s, x: s.geometric_mean([x[0], x[2]]),
    "quantiles": lambda s, x: s.quantiles([x[0], x[1], x[2]]),
    "correlation": lambda s, x: s.correlation([x[0], x[1], x[2]], [x[2], x[1], x[0]]),
    "distribution": lambda s, x: s.NormalDist(x[0], x[1]).cdf(x[2]),
}


@pytest.mark.parametrize("dtype", ["f8", "f4", "i8", "u1"])
@pytest.mark.parametrize("name", _STATISTICS)
def test_statistics_take_elements_as_numpys_scalars(name: str, dtype: str) -> None:
    ask = _STATISTICS[name]
    x = numpy.array([1, 2, 6], dtype)
    if name == "stdev" and dtype in ("i8", "u1"):
        for given in (x, alight.asarray(x)):  # NumPy's whole numbers have no bit_length
            with pytest.raises((AttributeError, TypeError)):
                ask(statistics, given)
        return
    found = ask(statistics, alight.asarray(x))
    # NumPy's whole numbers and short floats are made of what comes out, by most of them; here it
    # is kept.
    rounded = numpy.array(found, numpy.float64)
    wanted = [numpy.array(ask(statistics, given), "f8") for given in (x.astype("f8"), x)]
    assert any(numpy.allclose(rounded, one, rtol=1e-15) for one in wanted)
    with pytest.raises(TypeError):
        alight.Array(2.5)  # as ndarray does


def test_whole_numbers_are_fractions() -> None:
    n, f = alight.asarray(numpy.array([3]))[0], alight.asarray(numpy.array([3.0]))[0]
    assert (n.numerator, n.denominator) == (3, 1)
    for other in (f, alight.ones(3)):
        assert not hasattr(other, "numerator")
    assert type(fractions.Fraction(1, 2) + f) is float
