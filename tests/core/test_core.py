"""The core: layouts, bytes and who sees them, storages; the same for C and for Python."""

from __future__ import annotations

import gc
import itertools
import os
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from alight._src.ir.op_table import OPS, loop_dtypes
from alight._src.run import kernels

F8 = np.dtype(np.float64)


def concrete(core: Any, n: int = 16) -> Any:
    value = core.Value(None, (), (), core.make_layout(F8, (n,)))
    value.data = core.Data(value.layout, np.zeros(n))
    return value


def pending(core: Any, *operands: Any) -> Any:
    return core.Value("op", operands, (), core.make_layout(F8, (16,)))


# -- layouts ---------------------------------------------------------------------------------------


def strided_arrays(count: int) -> Any:
    draw = np.random.default_rng(7)
    dtypes = [np.dtype(c) for c in ("?", "i2", "f4", "f8", "c16", "V3", "S5")]
    for _ in range(count):
        ndim = int(draw.integers(0, 5))
        shape = tuple(int(n) for n in draw.choice([0, 1, 1, 2, 3, 4], ndim, p=[0.05, *[0.19] * 5]))
        array = np.zeros(shape, dtypes[draw.integers(len(dtypes))])
        array = array.transpose(draw.permutation(ndim))
        for axis in range(ndim):
            step = (1, 1, 1, 2, -1)[draw.integers(5)]
            array = array[(slice(None),) * axis + (slice(None, None, step),)]
        if draw.integers(4) == 0:
            array = array[..., None]
        if draw.integers(6) == 0:
            array = np.broadcast_to(array, (2, *array.shape))
        yield array


def test_layout_says_what_numpy_says(core: Any) -> None:
    for array in strided_arrays(1500):
        layout = core.layout_of(array)
        assert (layout.dtype, layout.shape, layout.strides) == (
            array.dtype,
            array.shape,
            array.strides,
        )
        assert (layout.ndim, layout.size, layout.itemsize) == (
            array.ndim,
            array.size,
            array.itemsize,
        )
        assert layout.nbytes == array.nbytes
        assert layout.c_contiguous == array.flags.c_contiguous
        order = sorted(range(array.ndim), key=lambda i: -array.strides[i])
        assert layout.dense == (array.size == 0 or array.transpose(order).flags.c_contiguous)
        fresh = np.empty(array.shape, array.dtype)
        assert layout.ordinary == (array.size > 0 and array.strides == fresh.strides)
        assert core.make_layout(array.dtype, array.shape, array.strides) is layout
        assert layout.probe.shape == array.shape and layout.probe.strides == array.strides
        assert layout.probe is layout.probe


def test_layouts_are_interned_and_die(core: Any) -> None:
    layout = core.make_layout(F8, (31, 7))
    assert layout is core.make_layout(dtype=np.dtype("f8"), shape=(31, 7), strides=(56, 8))
    assert layout is core.layout_of(np.zeros((31, 7)))
    assert layout is not core.make_layout(np.dtype("f4"), (31, 7))
    assert layout is not core.make_layout(F8, (31, 7), (8, 248))
    assert core.make_layout(np.dtype("l"), (3,)) is not core.make_layout(np.dtype("q"), (3,))
    assert hash(layout) == hash(layout) and layout in {layout: 1}
    assert repr(layout) == "float64[31, 7]"
    assert repr(core.make_layout(F8, (31, 7), (8, 248))) == "float64[31, 7], strides=(8, 248)"
    dead = weakref.ref(layout)
    del layout
    assert dead() is None
    kept = [core.make_layout(F8, (n, 1)) for n in range(5000)]
    assert all(core.make_layout(F8, (n, 1)) is kept[n] for n in range(5000))
    del kept[::2]
    assert core.make_layout(F8, (1, 1)) is kept[0] and core.make_layout(F8, (0, 1)).size == 0
    assert core.Layout(F8, (3,), (8,)) is not core.make_layout(F8, (3,))


@pytest.mark.parametrize("arguments", [(), (F8,), ("f8", (1,)), (F8, 3), (F8, [1], [8])])
def test_layouts_of_nonsense_are_errors(core: Any, arguments: Any) -> None:
    with pytest.raises((TypeError, AttributeError)):
        core.make_layout(*arguments)


def test_views_compare_by_what_they_are(core: Any) -> None:
    layout = core.make_layout(F8, (4,))
    view = core.View(layout, 8)
    assert view == core.View(layout, 8, True) and hash(view) == hash(core.View(layout, 8))
    assert (
        view != core.View(layout, 8, writeable=False) and view != core.View(layout, 0) and view != 8
    )
    view.writeable = False
    assert (view.layout, view.offset, view.writeable) == (layout, 8, False)
    assert repr(view) == "View(float64[4], offset=8)"


# -- bytes and who sees them -----------------------------------------------------------------------

LOOKS: dict[str, Callable[[np.ndarray[Any, Any]], Any]] = {
    "view": lambda a: a.view(),
    "view of a view": lambda a: a[1:][1:].reshape(-1, 2),
    "another dtype": lambda a: a[2:].view(np.uint8),
    "memoryview": memoryview,
    "slice of a memoryview": lambda a: memoryview(a)[2:4],
    "frombuffer": lambda a: np.frombuffer(memoryview(a), np.uint8),
    "DLPack capsule": lambda a: a.__dlpack__(),
    "from_dlpack": np.from_dlpack,
    "flat iterator": lambda a: a.flat,
    "the array": lambda a: a,
}


def own(core: Any) -> Any:
    return core.Data(core.make_layout(F8, (16,)), np.zeros(16))


def resting(core: Any) -> Any:
    owner = np.zeros(20)
    return core.Data(core.make_layout(F8, (16,)), owner[4:], owner)


def fresh(core: Any) -> Any:
    return core.fresh_data(core.make_layout(F8, (16,)))


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("with_raw", [False, True])
@pytest.mark.parametrize("make", [own, resting, fresh])
def test_data_knows_who_sees_it(core: Any, make: Any, with_raw: bool, look: str) -> None:
    data = make(core)
    if with_raw:
        data.raw  # noqa: B018
    assert not data.seen_outside() and not data.exported
    for _ in range(2):
        seen = LOOKS[look](data.array)
        assert data.seen_outside()
        assert not data.exported  # nobody said that it is shared
        data.shared = True
        assert data.exported and data.shared
        del seen
        assert not data.seen_outside()
        assert data.shared
        assert not data.exported and not data.shared


def test_data_whose_raw_bytes_are_seen(core: Any) -> None:
    for make in (own, resting, fresh):
        data = make(core)
        part = data.raw[3:]
        assert data.seen_outside()
        del part
        whole = data.raw
        assert data.seen_outside()
        del whole
        assert not data.seen_outside()
        owner = data.owner
        assert data.seen_outside()
        del owner
        assert not data.seen_outside()


def test_foreign_data_are_always_seen_unless_leased(core: Any) -> None:
    array = np.zeros(4)
    data = core.Data(core.layout_of(array), array, foreign=True)
    assert data.foreign and data.shared and data.exported
    data.shared = False
    assert not data.exported
    nowhere = core.Data(core.layout_of(array))
    assert nowhere.array is None and nowhere.owner is None and not nowhere.seen_outside()
    for name in ("raw", "address"):
        with pytest.raises(AssertionError, match="no host copy"):
            getattr(nowhere, name)


def test_raw_is_the_same_memory(core: Any) -> None:
    array = np.arange(24.0).reshape(2, 3, 4).transpose(1, 2, 0)
    data = core.Data(core.layout_of(array), array)
    assert data.raw.dtype == np.uint8 and data.raw.shape == (array.nbytes,)
    assert data.raw is data.raw and data.address == array.__array_interface__["data"][0]
    assert data.raw.view(F8).tolist() == list(range(24))
    data.raw[:8] = 255
    assert np.isnan(array[0, 0, 0])
    array.flags.writeable = False
    fixed = core.Data(core.layout_of(array), array)
    assert not fixed.raw.flags.writeable
    holes = np.zeros(9)[::2]
    with pytest.raises(ValueError):
        core.Data(core.layout_of(holes), holes).raw  # noqa: B018
    empty = np.zeros((0, 3))
    assert core.Data(core.layout_of(empty), empty).raw.shape == (0,)


# -- memory for results ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "strides"),
    [((), ()), ((3, 5), (8, 24)), ((0, 3), None), ((1 << 15,), None), ((2, 1, 300, 40), None),
     ((300, 1, 100), (8, 8, 2400)), ((1, 20_000), (8, 8))],
)  # fmt: skip
def test_fresh_data_are_arrays_as_numpy_makes_them(
    core: Any, shape: tuple[int, ...], strides: tuple[int, ...] | None
) -> None:
    layout = core.make_layout(F8, shape, strides)
    data = core.fresh_data(layout)
    assert not data.foreign and not data.exported and not data.seen_outside()
    array = data.array
    assert type(data) is core.Data and data.layout is layout
    assert (array.dtype, array.shape, array.strides) == (F8, shape, layout.strides)
    assert array.flags.writeable and array.flags.aligned
    array[...] = 1.0
    assert data.raw.nbytes == array.nbytes


def test_fresh_data_refuse_what_has_no_memory_of_its_own(core: Any) -> None:
    with pytest.raises(TypeError, match="objects"):
        core.fresh_data(core.make_layout(np.dtype(object), (3,)))
    with pytest.raises(ValueError, match=r"holes or overlaps.*Fix: "):
        core.fresh_data(core.make_layout(F8, (30,), (80,)))
    with pytest.raises((AttributeError, TypeError)):
        core.fresh_data(None)


# -- values and storages ---------------------------------------------------------------------------


def test_value_keeps_what_it_is_given(core: Any) -> None:
    layout = core.make_layout(F8, (16,))
    first, second = (
        core.Value("op", (), (("axis", 0),), layout),
        core.Value(None, (), (), layout, "here"),
    )
    assert (first.op, first.operands, first.attrs, first.layout) == (
        "op",
        (),
        (("axis", 0),),
        layout,
    )
    assert first.data is None and first.error is None and first.site is None and first.offset == 0
    assert second.seq == first.seq + 1 and second.site == "here"
    assert first.errstate is np._core.umath._extobj_contextvar.get()
    with np.errstate(all="ignore"):
        assert core.Value(None, (), (), layout).errstate is not first.errstate
    first.op, first.site, first.offset = None, ("code", 4), 24
    assert (first.op, first.site, first.offset) == (None, ("code", 4), 24)
    assert repr(second).endswith("constant float64[16]>") and "data" in repr(concrete(core))


def test_sole_counts_holders_of_a_value_exactly(core: Any) -> None:
    sole = core.sole
    value = concrete(core)
    assert sole(value, 0) and sole(value, 0, 0)
    data = value.data
    assert not sole(value, 0) and sole(value, 0, 1) and sole(value, 0, data_held=1)
    del data
    storage = core.Storage(value)
    assert not sole(value, 0) and sole(value, 1)
    reader = pending(core, value)
    assert not sole(value, 1) and sole(value, 2)
    twice = pending(core, value, value)
    assert not sole(value, 3) and sole(value, 4)
    del reader, twice
    assert sole(value, 1)
    other = core.Value(None, (), (), value.layout)
    other.data = value.data
    assert not sole(value, 1) and sole(value, 1, 1)
    del other, storage
    assert sole(value, 0)
    assert not sole(core.Value(None, (), (), value.layout), 5, 5)  # it has no bytes


def test_sole_of_what_a_storage_holds(core: Any) -> None:
    storage = core.Storage(concrete(core))
    # Not inside assert: pytest would keep a reference to what is read from the storage.
    alone = core.sole(storage.value, 0)
    reader = pending(core, storage.value)
    read = core.sole(storage.value, 0)
    del reader
    again = core.sole(storage.value, 0)
    value = storage.value
    assert (alone, read, again) == (True, False, True)
    assert core.sole(value, 1) and not core.sole(value, 0)


def test_pending_storages_come_oldest_first(core: Any) -> None:
    before = core.pending_storages()
    assert [s for s in before if s.value.op is None] == []

    def listed() -> list[Any]:
        return [s for s in core.pending_storages() if s not in before]

    settled = core.Storage(concrete(core))
    a, b, c = (core.Storage(pending(core)) for _ in range(3))
    assert listed() == [a, b, c]
    settled.rebind(pending(core))
    assert listed() == [a, b, c, settled]
    b.value.op = None
    assert listed() == [a, c, settled]
    b.rebind(pending(core))
    b.rebind(pending(core))
    assert listed() == [a, c, settled, b]
    a.value.op = None
    a.rebind(pending(core))  # before anyone looked: it keeps its place
    assert listed() == [a, c, settled, b]
    c.value = concrete(core)
    del settled
    assert listed() == [a, b]
    a.rebind(concrete(core))
    del b
    assert listed() == []
    many = [core.Storage(pending(core)) for _ in range(1000)]
    del many[::3]
    assert listed() == many


def test_cycles_through_values_are_collected(core: Any) -> None:
    class Held:
        pass

    def through_error(held: Any) -> None:
        value = pending(core)
        try:
            raise ValueError(held)
        except ValueError as error:
            value.error = error
        held.value = value

    def through_attrs(held: Any) -> None:
        held.storage = core.Storage(
            core.Value("op", (), (("function", held),), core.make_layout(F8, (1,)))
        )

    def through_array(held: Any) -> None:
        held.array = core.ArrayBase.of(
            pending(core, core.Value(held, (), (), core.make_layout(F8, (1,))))
        )

    def through_remote(held: Any) -> None:
        held.data = own(core)
        held.data.remote = {"device": held}

    def through_operands(held: Any) -> None:
        held.values = pending(
            core, pending(core, core.Value(held, (), (), core.make_layout(F8, (1,))))
        )

    for make in (through_error, through_attrs, through_array, through_remote, through_operands):
        held = Held()
        make(held)
        seen = weakref.ref(held)
        del held
        gc.collect()
        assert seen() is None, make


def test_long_chains_die_without_recursion(core: Any) -> None:
    value = concrete(core)
    for _ in range(200_000):
        value = pending(core, value)
    del value


def test_everything_can_be_watched(core: Any) -> None:
    value = concrete(core, 1917)  # a layout that nothing else holds
    things = [
        value,
        value.layout,
        value.data,
        core.Storage(value),
        core.ArrayBase.of(value),
        fresh(core),
    ]
    seen = [weakref.ref(thing) for thing in things]
    assert all(ref() is thing for ref, thing in zip(seen, things, strict=True))
    del value, things
    assert [ref() for ref in seen] == [None] * len(seen)


def test_missing_fields_are_errors_not_crashes(core: Any) -> None:
    value = concrete(core)
    storage, array = core.Storage(value), core.ArrayBase.of(value)
    for holder, name in (
        (value, "op"),
        (value, "data"),
        (storage, "value"),
        (array, "storage"),
        (array, "window"),
    ):
        delattr(holder, name)
        with pytest.raises(AttributeError):
            getattr(holder, name)
    with pytest.raises((AttributeError, TypeError)):
        core.Storage(None)
    with pytest.raises(TypeError):
        core.Value(nothing=1)
    gc.collect()


def churn(core: Any, rounds: int) -> None:
    kept: list[Any] = []
    for i in range(rounds):
        value = core.Value(None, (), (), core.make_layout(F8, (i % 7, 3)))
        value.data = core.fresh_data(value.layout)
        value.data.raw[:] = 0
        storage = core.Storage(value)
        storage.rebind(core.Value("op", (value, value), (i,), value.layout))
        kept.append((core.ArrayBase.of(storage.value), storage, core.View(value.layout, i)))
        if len(kept) > 5:
            del kept[i % 3]
        core.pending_storages()
        core.sole(value, i % 4, 1)
        repr(value), value.site, value.data.exported


def test_values_and_storages_leak_nothing(core: Any) -> None:
    kernels.settle()  # what tests before asked for is compiled in the background
    churn(core, 400)
    gc.collect()
    before = sys.getallocatedblocks()
    churn(core, 4000)
    gc.collect()
    assert sys.getallocatedblocks() - before < 400


def test_the_collector_may_run_anywhere(core: Any) -> None:
    thresholds = gc.get_threshold()
    gc.set_threshold(1)
    try:
        churn(core, 400)
    finally:
        gc.set_threshold(*thresholds)


def test_threads_share_the_list_of_pending_storages(core: Any) -> None:
    before = len(core.pending_storages())
    kept: list[list[Any]] = [[] for _ in range(4)]

    def record(into: list[Any]) -> None:
        for i in range(2000):
            into.append(core.Storage(pending(core)))
            if i % 3 == 0:
                into.pop(i // 7 % len(into))
            if i % 50 == 0:
                core.pending_storages()

    threads = [threading.Thread(target=record, args=(into,)) for into in kept]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    everyone = set(map(id, itertools.chain(*kept)))
    found = [s for s in core.pending_storages() if id(s) in everyone]
    assert len(found) == len(everyone)
    del found
    kept.clear()
    assert len(core.pending_storages()) <= before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_child_records(core: Any) -> None:
    storage = core.Storage(pending(core))
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            mine = core.Storage(pending(core))
            listed = core.pending_storages()
            os.write(write, b"y" if storage in listed and mine in listed else b"n")
            churn(core, 50)
        finally:
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert os.read(read, 1) == b"y"
    os.close(read)
    os.close(write)


def test_two_of_cs_types_that_are_one_dtype_to_numpy_keep_their_scalars(core: Any) -> None:
    long, longer = np.dtype("l"), np.dtype("q")
    for first, second in ((longer, long), (long, longer)):
        layouts = [core.make_layout(dtype, (1237, 3)) for dtype in (first, second)]
        assert [layout.dtype.char for layout in layouts] == [first.char, second.char]
        assert core.make_layout(first, (1237, 3)) is layouts[0]
    for dtype in (longer, long):
        assert [d.char for d in loop_dtypes(OPS["add"], (dtype, dtype))] == [dtype.char] * 3
