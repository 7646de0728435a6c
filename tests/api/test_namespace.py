"""`import alight as np`: every public name of NumPy, with Arrays as results."""

from __future__ import annotations

import copy
import inspect
import os
import pickle
import sysconfig
import traceback
import types
import warnings
from typing import Any

import numpy as np
import pytest

import alight
from alight._src.api.ufunc_objects import Ufunc
from alight._src.log.decisions import LOG
from alight._src.record import tracebacks
from alight._src.record.ufunc_calls import UFUNCS

PUBLIC = [name for name in dir(np) if not name.startswith("_")]


def is_array(item: Any) -> bool:
    return type(item) is alight.Array


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_is_there(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = getattr(np, name)
        ours = getattr(alight, name)
    assert callable(ours) == callable(theirs)
    if isinstance(theirs, np.ufunc):
        assert isinstance(ours, Ufunc) and ours.__name__ == theirs.__name__
        assert repr(ours) == repr(theirs) and ours.__doc__ == theirs.__doc__
        for attribute in ("nin", "nout", "nargs", "ntypes", "types", "identity", "signature"):
            assert getattr(ours, attribute) == getattr(theirs, attribute)
    elif isinstance(theirs, (float, bool, type(None), np.dtype)):
        assert ours is theirs
    elif inspect.isfunction(theirs) or type(theirs) is type(np.sum):
        assert ours.__name__ == theirs.__name__
        assert ours.__doc__ == theirs.__doc__
    assert getattr(alight, name) is ours  # found once


def test_signatures_of_functions_are_numpys() -> None:
    for name in ("sum", "median", "concatenate", "take", "linspace", "cumsum", "einsum"):
        try:
            expected = inspect.signature(getattr(np, name))
        except ValueError:
            continue
        assert inspect.signature(getattr(alight, name)) == expected


def test_the_directory_has_numpys_names_and_ours() -> None:
    assert set(PUBLIC) <= set(dir(alight))
    assert {"Array", "evaluate", "policy"} <= set(dir(alight))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'alight' has no attribute 'nonsense'"):
        _ = alight.nonsense
    with pytest.raises(AttributeError, match=r"no attribute 'to_device'. Fix: .* x\.to_device"):
        _ = alight.to_device
    for module in (alight.linalg, alight.fft, alight.random):
        with pytest.raises(AttributeError):
            _ = module.nonsense


def test_numpys_own_objects_stay_so() -> None:
    for name in ("float64", "dtype", "errstate", "finfo", "exceptions", "testing", "ma", "lib"):
        assert getattr(alight, name) is getattr(np, name)
    assert alight.ndarray is alight.Array
    assert alight.ufunc is Ufunc


@pytest.mark.parametrize(
    "expression",
    [
        *("np.add(1, 2)", "np.add([1], [2])", "np.sqrt(4.0)", "np.sum([1, 2])", "np.mean([1, 2])"),
        *("np.zeros(3)", "np.arange(3)", "np.array(3)", "np.asarray([1])", "np.median([1, 2])"),
        *("np.linalg.inv([[1.0]])", "np.linalg.det([[2.0]])", "np.fft.fft([1, 2])", "np.r_[1:3]"),
        *("np.random.rand(3)", "np.random.default_rng(1).normal(size=2)", "np.array([1, 2])[0]"),
        *("np.array([1, 2]).sum()", "np.add.reduce([1, 2])", "np.add.outer([1], [2])", "np.eye(2)"),
        *("np.vectorize(lambda x: x + 1)([1, 2])", "np.linspace(0, 1, 3)", "np.unique([1, 1])"),
        *("np.meshgrid([1], [2])[0]", "np.broadcast_arrays([1], [[2]])[1]", "np.mgrid[0:2]"),
        *("np.split(np.arange(4), 2)[1]", "np.modf(2.5)[0]", "np.histogram([1.0])[0]"),
    ],
)
def test_results_of_the_namespace_are_arrays(expression: str) -> None:
    assert is_array(eval(expression, {"np": alight}))


def test_a_total_rounds_as_a_scalar_does_and_an_array_does_not() -> None:
    for dtype in ("f8", "f4", "i8"):
        total = alight.full(3, 41.25, dtype).sum()
        for digits in ((), (1,), (-2,)):
            rounded, expect = round(total, *digits), round(np.full(3, 41.25, dtype).sum(), *digits)
            assert (type(rounded), rounded) == (type(expect), expect)
    with pytest.raises(TypeError, match=r"type alight\.Array doesn't define __round__ method"):
        round(alight.ones(1))


def test_what_arrays_cannot_hold_stays_numpys() -> None:
    assert type(alight.array(["a", "b"])) is np.ndarray
    assert type(alight.add(np.array(["a"], object), "b")) is np.ndarray
    assert type(alight.array(["2020-01-01"], "M8[D]")) is np.ndarray
    assert alight.add("a", "b") == "ab" if hasattr(np.add("a", "b"), "dtype") else True
    masked = np.ma.array([1, 2], mask=[True, False])
    assert isinstance(alight.add(masked, 1), np.ma.MaskedArray)
    assert isinstance(alight.sum(np.matrix([[1, 2]]), axis=0), np.matrix)


class TestUfunc:
    def test_ufuncs_have_their_methods(self) -> None:
        a = alight.arange(6.0).reshape(2, 3)
        assert alight.add.reduce(a, axis=1).tolist() == [3.0, 12.0]
        assert alight.add.reduce(a, axis=None, initial=1).tolist() == 16.0
        assert alight.multiply.accumulate(a, 1).tolist() == [[0, 0, 0], [3, 12, 60]]
        assert alight.add.reduceat(a[0], [0, 1]).tolist() == [0, 3]
        assert alight.subtract.outer([1, 2], [3]).tolist() == [[-2], [-1]]
        alight.add.at(a, (0, [0, 0]), 1)
        assert a[0, 0] == 2

    def test_a_ufunc_takes_out_in_every_form(self) -> None:
        a, out = alight.arange(3.0), alight.zeros(3)
        assert alight.add(a, 1, out) is out and out.tolist() == [1, 2, 3]
        assert alight.add(a, 2, out=out) is out and out.tolist() == [2, 3, 4]
        assert alight.add(a, 3, out=(out,)) is out and out.tolist() == [3, 4, 5]
        assert alight.add(a, 1, None).tolist() == [1, 2, 3]
        assert alight.modf(a, None, out)[1] is out
        ndarray = np.zeros(3)
        assert alight.add(a, 1, out=ndarray) is ndarray and ndarray.tolist() == [1, 2, 3]

    def test_ufuncs_are_pickled_and_equal_numpys(self) -> None:
        assert pickle.loads(pickle.dumps(alight.add)) is alight.add
        assert alight.add == np.add and alight.abs is alight.absolute
        assert alight.add.resolve_dtypes((np.dtype("f4"), int, None))[-1] == np.float32

    def test_frompyfunc_makes_ufuncs_that_take_arrays(self) -> None:
        doubled = alight.frompyfunc(lambda x: 2 * x, 1, 1)
        assert doubled(alight.arange(3)).tolist() == [0, 2, 4]


class TestConversion:
    def test_an_array_comes_back_as_it_is(self) -> None:
        a = alight.arange(3)
        assert alight.asarray(a) is a and alight.asanyarray(a) is a
        assert alight.array(a) is not a and alight.asarray(a, copy=True) is not a
        assert alight.ascontiguousarray(a) is a and alight.asarray(a, dtype=a.dtype) is a
        with pytest.raises(ValueError, match="Unable to avoid copy"):
            alight.asarray(a, dtype=float, copy=False)

    def test_an_ndarray_is_copied(self) -> None:
        theirs = np.arange(3.0)
        a = alight.asarray(theirs)
        b = a + 1
        theirs[0] = 99
        assert a.tolist() == [0, 1, 2] and b.tolist() == [1, 2, 3]

    def test_without_copy_memory_is_shared_both_ways(self) -> None:
        theirs = np.arange(3.0)
        a = alight.asarray(theirs, copy=False)
        theirs[0] = 99
        assert a[0] == 99
        a[1] = -1
        assert theirs[1] == -1

    def test_a_buffer_is_shared(self) -> None:
        buffer = bytearray(8)
        a = alight.frombuffer(buffer, np.uint8)
        a[0] = 7
        assert buffer[0] == 7
        fixed = alight.frombuffer(b"abc", np.uint8)
        with pytest.raises(ValueError, match="read-only"):
            fixed[0] = 1

    def test_dlpack_shares_memory_both_ways(self) -> None:
        a = alight.arange(4.0)
        theirs = np.from_dlpack(a)
        # NumPy 2.1 gives what nobody may write, of its own arrays too.
        assert theirs.flags.writeable == np.from_dlpack(np.arange(4.0)).flags.writeable
        if theirs.flags.writeable:
            theirs[0] = 5
            assert a[0] == 5
        back = alight.from_dlpack(np.arange(3))
        assert is_array(back) and back.tolist() == [0, 1, 2]
        assert alight.from_dlpack(a).tolist() == a.tolist()

    def test_nested_sequences_of_arrays_become_one_array(self) -> None:
        a = alight.arange(3)
        for module in (alight, np):
            assert module.array([a, [7, 8, 9]]).tolist() == [[0, 1, 2], [7, 8, 9]]
            assert module.array([a[0], a[1] + 1]).tolist() == [0, 2]
        assert np.asarray(a, dtype=float).dtype == np.float64
        assert np.array(a, ndmin=2, order="F").shape == (1, 3)

    def test_like_makes_arrays_of_ours(self) -> None:
        a = alight.arange(3)
        assert is_array(np.asarray([1, 2], like=a)) and is_array(np.zeros(3, like=a))
        assert is_array(alight.zeros(3, like=a))

    def test_creation_takes_cpu_as_its_only_device(self) -> None:
        assert alight.zeros(3, device="cpu").device == "cpu"
        assert alight.asarray([1], device=None).device == "cpu"
        for call in (alight.zeros, alight.asarray, alight.zeros_like):
            with pytest.raises(ValueError, match="nowhere"):
                call(alight.arange(2) if call is alight.zeros_like else 2, device="nowhere")

    def test_ndarray_of_the_namespace_makes_arrays(self) -> None:
        assert alight.ndarray((2, 3), np.int16).shape == (2, 3)
        buffer = bytearray(16)
        a = alight.ndarray((2,), float, buffer)
        a[0] = 1.0
        assert buffer[7] == 0x3F


class TestRandom:
    def test_generators_are_numpys_bit_for_bit(self) -> None:
        ours, theirs = alight.random.default_rng(3), np.random.default_rng(3)
        assert isinstance(ours, np.random.Generator)
        for draw in (
            lambda g: g.random(5),
            lambda g: g.normal(size=(2, 3)),
            lambda g: g.integers(0, 9, 4),
            lambda g: g.choice(np.arange(9), 3, replace=False),
            lambda g: g.permutation(5),
        ):
            assert np.array_equal(np.asarray(draw(ours)), draw(theirs))
        assert type(ours.random()) is type(theirs.random())

    def test_filling_and_shuffling_change_the_array(self) -> None:
        a, b = alight.zeros(4), np.zeros(4)
        assert alight.random.default_rng(1).random(out=a) is a
        np.random.default_rng(1).random(out=b)
        assert a.tolist() == b.tolist()
        alight.random.default_rng(1).shuffle(a)
        np.random.default_rng(1).shuffle(b)
        assert a.tolist() == b.tolist()

    def test_the_global_state_is_numpys(self) -> None:
        np.random.seed(5)
        expected = np.random.rand(3)
        alight.random.seed(5)
        assert alight.random.rand(3).tolist() == expected.tolist()


class TestStandard:
    def test_an_array_names_its_namespace_and_the_standard(self) -> None:
        a = alight.arange(3)
        assert a.__array_namespace__() is alight
        assert alight.__array_api_version__ == "2025.12"
        info = alight.__array_namespace_info__()
        assert info.devices() == ("cpu",) and info.default_device() == "cpu"
        assert info.capabilities()["boolean indexing"] is True

    def test_sort_and_argsort_sort_downwards(self) -> None:
        a = alight.asarray([2, 3, 1, 3])
        assert alight.sort(a, descending=True).tolist() == [3, 3, 2, 1]
        assert alight.argsort(a, descending=True).tolist() == [1, 3, 0, 2]

    def test_eigenvalues_are_complex_whatever_the_data(self) -> None:
        values, vectors = alight.linalg.eig(alight.eye(2))
        assert values.dtype == vectors.dtype == np.complex128
        assert alight.linalg.eigvals(alight.eye(2)).dtype == np.complex128
        assert np.linalg.eigvals(alight.eye(2)).dtype == np.linalg.eigvals(np.eye(2)).dtype

    def test_frequencies_take_a_dtype(self) -> None:
        assert alight.fft.fftfreq(4, dtype=np.float32).dtype == np.float32


class TestMemory:
    def test_views_that_numpy_makes_share_memory(self) -> None:
        a = alight.arange(12.0).reshape(3, 4)
        for view in (
            alight.einsum("ij->ji", a).T,
            alight.split(a, 1)[0],
            alight.atleast_3d(a)[..., 0],
            alight.broadcast_arrays(a)[0],
            alight.diag(a),
            alight.unstack(a)[0],
        ):
            a[0, 0] += 1
            assert np.asarray(view).flat[0] == a[0, 0]

    def test_a_function_that_returns_its_argument_does_not_make_a_second_owner(self) -> None:
        a = alight.arange(3.0)
        b = alight.real_if_close(a)
        a[0] = 5
        with alight.policy(floor=0):
            a[1] = 7
        assert b.tolist() == a.tolist() == [5, 7, 2]

    def test_a_view_that_an_exit_returns_is_a_view(self) -> None:
        a = alight.asarray([0.0, 1.0, 2.0, 0.0])
        inner = alight.trim_zeros(a)
        inner[0] = 9
        assert a.tolist() == [0, 9, 2, 0]
        a[2] = 5
        assert inner.tolist() == [9, 5]

    def test_an_input_that_may_be_spoiled_is_not(self) -> None:
        a = alight.asarray([3.0, 1.0, 2.0])
        b = a[:]
        assert alight.median(a, overwrite_input=True) == 2
        assert alight.percentile(a, 50, None, None, True) == 2
        assert a.tolist() == b.tolist() == [3, 1, 2]

    def test_memory_of_the_caller_is_copied_from_results(self) -> None:
        theirs = np.arange(3.0)
        result = alight.real_if_close(theirs)
        theirs[0] = 9
        assert result.tolist() == [0, 1, 2]

    def test_pickles_are_numpys_and_copies_are_not(self) -> None:
        a = alight.arange(3)
        assert type(pickle.loads(pickle.dumps(a))) is np.ndarray
        assert type(copy.copy(a)) is type(copy.deepcopy(a)) is alight.Array
        assert copy.deepcopy(a).tolist() == [0, 1, 2]


class TestFlags:
    @pytest.mark.parametrize("expression", ["a", "a.T", "a[:, 1]", "a[::-1]", "a[:0]", "a[0, 0]"])
    def test_flags_of_arrays_are_numpys(self, expression: str) -> None:
        ours = eval(expression, {"a": alight.array(np.arange(6.0).reshape(2, 3))}).flags
        theirs = np.asarray(eval(expression, {"a": np.arange(6.0).reshape(2, 3).copy()})).flags
        for name in ("C", "F", "W", "A", "X", "FNC", "FORC", "B", "CA", "FA"):
            if expression != "a[0, 0]":
                assert ours[name] == theirs[name], name
        assert repr(ours).splitlines()[0] == repr(theirs).splitlines()[0]
        with pytest.raises(KeyError, match="Unknown flag"):
            ours["nonsense"]

    def test_an_array_can_be_made_read_only(self) -> None:
        a = alight.arange(3)
        view = a[1:]
        a.flags.writeable = False
        with pytest.raises(ValueError, match="read-only"):
            a[0] = 1
        with pytest.raises(ValueError, match="output array is read-only"):
            a += 1
        view[0] = 7
        assert a.tolist() == [0, 7, 2]
        a.setflags(write=True)
        a[0] = 1
        fixed = alight.asarray(np.broadcast_to(1.0, 3), copy=False)
        with pytest.raises(ValueError, match="cannot set WRITEABLE flag"):
            fixed.flags.writeable = True


class TestAppearance:
    """What code of packages hears when it asks whether an array is an ndarray."""

    ASKS = """
import numpy as np
def isdense(x): return isinstance(x, np.ndarray)
class DataFrame:
    def set_index(x): return isinstance(x, np.ndarray)
    def other(x): return isinstance(x, np.ndarray)
"""

    @pytest.mark.parametrize(
        ("path", "told"),
        [
            ("pandas/core/common.py", (True, True, True)),
            ("pandas/core/frame.py", (False, True, False)),
            ("scipy/sparse/_sputils.py", (True, False, False)),
            ("matplotlib/axes/_axes.py", (False, False, False)),
        ],
    )
    def test_packages_hear_ndarray_where_they_only_ask_what_it_means(
        self, path: str, told: tuple[bool, ...]
    ) -> None:
        names: dict[str, Any] = {}
        file = os.path.join(sysconfig.get_path("purelib"), *path.split("/"))
        exec(compile(self.ASKS, file, "exec"), names)
        frame = names["DataFrame"]
        asked = names["isdense"], frame.set_index, frame.other

        def answers(array: Any) -> tuple[bool, ...]:
            return tuple([ask(array) for ask in asked])

        array = alight.arange(3) > 1
        assert answers(array) == told and answers(np.arange(3)) == (True, True, True)
        assert not isinstance(array, np.ndarray) and array.__class__ is alight.Array
        heard: list[Any] = []

        @alight.jit
        def jitted(x: Any) -> Any:
            heard.append((answers(x), isinstance(x, np.ndarray)))
            return x + 1

        with alight.policy(floor=0):
            jitted(np.arange(3.0))
        assert heard == [((True, True, True), True)]  # inside `jit` packages get ndarrays
        assert answers(array) == told and not isinstance(array, np.ndarray)


class TestTracebacks:
    """Errors end at the line of the program, or in NumPy, as NumPy's do."""

    PROGRAMS = """
a + np.ones(4)
a @ b
a[5]
a[0, 0, 0]
a.reshape(4, 4)
a.sum(axis=5)
a.astype("zz")
a.item(99)
a.fill("x")
a.__setitem__(9, 1)
a.__iadd__(np.ones(4))
float(a)
bool(a)
len(np.zeros(()))
np.sin()
np.add(a, np.ones(4))
np.add.reduce(a, axis=7)
np.concatenate([a, np.ones(4)])
np.sum(a, axis=3)
np.zeros(-1)
np.array([[1, 2], [3]])
np.histogram(a, -1)
np.linalg.inv(np.zeros((3, 3)))
np.linalg.eigvals(np.zeros(3))
np.fft.fft(a, axis=9)
np.random.rand(-1)
np.einsum("ij,jk", a, a)
numpy.concatenate([a, np.ones(4)])
numpy.add(a, np.ones(4))
a[1:].resize(77)
a.shape = (4, 4)
a.dtype = "M8[s], i1"
a.real = "text"
a.flat = "text"
a.imag = 3
np.vectorize(int)(np.array(["text"]))
""".strip().split("\n")

    @staticmethod
    def files(text: str) -> list[str]:
        """Return the files of the frames below the program's own."""
        given = {"np": alight, "numpy": np, "a": alight.ones((2, 3)), "b": alight.ones((2, 3))}
        with pytest.raises((ValueError, TypeError, IndexError, np.linalg.LinAlgError)) as caught:
            exec(compile(text, "program.py", "exec"), given)
        frames = traceback.extract_tb(caught.value.__traceback__)
        place = [frame.filename for frame in frames].index("program.py")
        return [frame.filename for frame in frames[place + 1 :]]

    @pytest.mark.parametrize("least", [0, 100])
    @pytest.mark.parametrize("text", PROGRAMS)
    def test_no_frame_is_ours(self, text: str, least: int) -> None:
        package = os.path.dirname(str(alight.__file__))
        with alight.policy(floor=least):
            assert [file for file in self.files(text) if file.startswith(package)] == []

    def test_a_setting_keeps_them_and_faults_of_ours_do(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fails(*args: Any, **kwargs: Any) -> Any:
            raise AssertionError("of ours")

        def falls(*args: Any, **kwargs: Any) -> Any:
            raise ValueError("of the program's")

        for made, kept in ((fails, True), (falls, False)):
            code = made.__code__.replace(co_filename=tracebacks.__file__)
            shown = tracebacks.public(types.FunctionType(code, globals()))
            with pytest.raises((AssertionError, ValueError)) as caught:
                shown()
            frames = traceback.extract_tb(caught.value.__traceback__)
            assert (frames[-1].filename == tracebacks.__file__) is kept
        monkeypatch.setattr(tracebacks, "config", lambda: types.SimpleNamespace(log_level="info"))
        assert any(file.endswith("methods.py") for file in self.files("a.reshape(4, 4)"))


def test_messages_name_arrays_and_their_methods_as_programs_do() -> None:
    array: Any = alight.ones(3)
    assert str(type(array)) == "<class 'alight.Array'>"
    for ask in (array.__hash__ or (lambda: hash(array)), lambda: array.foo, lambda: array()):
        with pytest.raises((TypeError, AttributeError), match=r"'alight\.Array'"):
            ask()
    with pytest.raises(TypeError, match=r"^Array\.sort\(\) got an unexpected keyword argument"):
        array.sort(foo=1)
    with pytest.raises(TypeError, match=r"^type alight\.Array doesn't define __round__"):
        round(array)
    for found in (alight.Array, alight.Array.sort, alight.Array.choose):
        assert pickle.loads(pickle.dumps(found)) is found


def test_exits_of_ufuncs_methods_say_whose() -> None:
    before = LOG.snapshot()
    with alight.policy(floor=0):
        array: Any = alight.arange(6.0)
        np.add.at(array, [1], 2.0)
        np.subtract.outer(array, array)
        np.add(array, array, where=[True] * 6, out=np.zeros(6))
    names = {row.what for row in LOG.snapshot().since(before).exits}
    assert {"add.at", "add"} <= names and not any("ufunc" in name for name in names), names


@pytest.mark.parametrize("module", ["", "linalg", "fft", "random"])
def test_functions_are_pickled_by_name(module: str) -> None:
    theirs, ours = (getattr(m, module) if module else m for m in (np, alight))
    for name in dir(theirs):
        function = getattr(ours, name, None)
        own = function is not getattr(theirs, name)
        if name[0] != "_" and name != "test" and own and callable(function):
            assert pickle.loads(pickle.dumps(function)) is function, name


class Refusing:
    """Takes no arrays but those of one class."""

    def __init__(self, wanted: type) -> None:
        self.wanted = wanted

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return method if any(type(item) is self.wanted for item in inputs) else NotImplemented


def test_who_calls_a_ufuncs_protocol_hears_that_others_refused() -> None:
    a = alight.arange(5.0)
    assert a.__array_ufunc__(np.add, "__call__", a, Refusing(int)) is NotImplemented
    assert np.add(a, Refusing(np.ndarray)) == "__call__"
    with pytest.raises(TypeError, match="operand type"):
        np.add(a, Refusing(int))


def test_at_gives_what_the_operands_own_type_gives() -> None:
    assert alight.multiply.at(Refusing(int), [4, 2], 1) == "at"
    a = alight.arange(3)
    assert alight.multiply.at(a, [1, 1], 3) is None and a.tolist() == [0, 9, 2]


class Wrapping:
    """Hands out what it holds, and takes results in, as what is no array but like one does."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = array

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray[Any, Any]:
        return self.array

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: Any = False) -> Any:
        return Wrapping(array)


_OF_NUMPY = [u for u in UFUNCS if getattr(np, u.__name__, None) is u and u.signature is None]


@pytest.mark.parametrize("ufunc", [u for u in _OF_NUMPY if "d" * u.nin + "->d" in u.types], ids=str)
def test_results_are_wrapped_by_what_they_were_computed_of(ufunc: np.ufunc) -> None:
    values = np.linspace(0.25, 0.75, 8)
    operands = [Wrapping(values)] * ufunc.nin
    ours = getattr(alight, ufunc.__name__)
    with alight.policy(floor=0):
        for mixed in ([], [values]):
            given = [*mixed, *operands[len(mixed) :]]
            expected, actual = (
                ufunc(*given),
                ours(*[*map(alight.asarray, mixed), *given[len(mixed) :]]),
            )
            assert isinstance(actual, Wrapping) == isinstance(expected, Wrapping)
            theirs, mine = (r.array if isinstance(r, Wrapping) else r for r in (expected, actual))
            np.testing.assert_array_equal(np.asarray(mine), theirs)


def test_an_array_is_pinned_nowhere_and_told_who_decides() -> None:
    x = alight.ones(3)
    assert x.to_device("cpu") is x
    for name in ("gpu", "sim:7", None):
        with pytest.raises(ValueError, match=rf"an array to {name!r}. Fix: leave .*\.devices\(\)"):
            x.to_device(name)
