"""`alight.random.Counter`: its bits, that they are the same wherever and however they are made,
that none comes twice, and its manners."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

import alight
import cuda_on_cpu
from alight._src.api import counter_draws
from alight._src.codegen.common.source import gap
from alight._src.codegen.cuda.group_forms import card_nest, form, schedule
from alight._src.codegen.wgsl.wgsl_dialect import wgsl
from alight._src.ir.op_table import OPS
from alight._src.ir.table_random import _BODIES
from alight.random import Counter
from generated import loop_group, loops

Array = np.ndarray[Any, Any]
MODES: dict[str, dict[str, Any]] = {
    "auto": {},
    "numpy": {"force": "numpy", "floor": 0},
    "generated": {"force": "cpu:generated", "floor": 0, "on_gap": "raise"},
    "sim": {"force": "sim:0", "floor": 0, "devices": ["cpu", "sim:0"]},
}
DRAWS: dict[str, Callable[[Counter, Any], Any]] = {
    "raw": lambda rng, n: rng.random_raw(n),
    "random": lambda rng, n: rng.random(n),
    "random float32": lambda rng, n: rng.random(n, np.float32),
    "normal": lambda rng, n: rng.standard_normal(n),
    "normal float32": lambda rng, n: rng.standard_normal(n, np.float32),
    "exponential": lambda rng, n: rng.standard_exponential(n),
    "exponential float32": lambda rng, n: rng.standard_exponential(n, np.float32),
    "scaled": lambda rng, n: rng.normal(3.0, 0.5, n),
    "uniform": lambda rng, n: rng.uniform(-2, 5, n),
    "integers": lambda rng, n: rng.integers(-3, 1000, n),
}


def same(a: Any, b: Any) -> bool:
    a, b = np.asarray(a), np.asarray(b)
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


# --- the bits
# Of Threefry2x32-20, from the known answers that come with Random123: counter, key, result.
KNOWN = (
    ((0x00000000, 0x00000000), (0x00000000, 0x00000000), (0x6B200159, 0x99BA4EFE)),
    ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
    ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
)


def word(halves: tuple[int, int]) -> int:
    return halves[0] | halves[1] << 32


@pytest.mark.parametrize("mode", MODES)
def test_bits_are_those_of_threefrys_known_answers(mode: str) -> None:
    for at, key, expected in KNOWN:
        rng = Counter(0)
        rng.state = {**rng.state, "key": word(key), "position": word(at)}
        with alight.policy(**MODES[mode]):
            assert int(np.asarray(rng.random_raw(1))[0]) == word(expected)


def threefry(at: int, key: int) -> int:
    """Return the 64 bits of one counter, in Python's integers."""
    keys = [key & 0xFFFFFFFF, key >> 32]
    keys.append(keys[0] ^ keys[1] ^ 0x1BD11BDA)
    a, b = at & 0xFFFFFFFF, at >> 32
    a, b = (a + keys[0]) % 2**32, (b + keys[1]) % 2**32
    for turn in range(20):
        by = (13, 15, 26, 6, 17, 29, 16, 24)[turn % 8]
        a = (a + b) % 2**32
        b = ((b << by | b >> (32 - by)) % 2**32) ^ a
        if turn % 4 == 3:
            number = turn // 4 + 1
            a = (a + keys[number % 3]) % 2**32
            b = (b + keys[(number + 1) % 3] + number) % 2**32
    return a | b << 32


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("start", [0, 2**32 - 3, 2**64 - 3])
def test_each_element_is_a_function_of_its_place(mode: str, start: int) -> None:
    rng = Counter(1).advance(start)
    with alight.policy(**MODES[mode]):
        found = np.asarray(rng.random_raw(9)).tolist()
    assert found == [threefry((start + i) % 2**64, rng.state["key"]) for i in range(9)]
    assert rng.state["position"] == (start + 9) % 2**64


def test_floats_are_made_of_the_bits() -> None:
    words = np.asarray(Counter(2).random_raw(5000))
    assert same(Counter(2).random(5000), (words >> np.uint64(11)) * 2.0**-53)
    halves = (words >> np.uint64(40)).astype(np.float32)
    assert same(Counter(2).random(5000, np.float32), halves * np.float32(2.0**-24))
    below = [int(w) * 1003 >> 64 for w in words]
    assert np.asarray(Counter(2).integers(-3, 1000, 5000)).tolist() == [w - 3 for w in below]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_normals_and_exponentials_are_exact_to_a_few_ulp(dtype: Any) -> None:
    # Positions whose words have long tails are found among many; the middle is in any draw.
    words = np.asarray(Counter(3).random_raw(400_000))
    tails = np.argsort(words & np.uint64(2**63 - 1))[:300]
    chosen = np.concatenate([tails, np.arange(3000)])
    normals = np.asarray(Counter(3).standard_normal(400_000, dtype))[chosen]
    exponentials = np.asarray(Counter(3).standard_exponential(400_000, dtype))[chosen]
    drawn = words[chosen].tolist(), normals.tolist(), exponentials.tolist()
    for w, z, e in zip(*drawn, strict=True):
        if dtype is np.float64:
            tail = (w % 2**63 + 0.5) * 2.0**-64
            whole = (w >> 32) * 2.0**-32 + (w % 2**32 + 0.5) * 2.0**-64
        else:
            tail = float((np.float32(w % 2**63 >> 32) + np.float32(0.5)) * np.float32(2.0**-32))
            whole = float((np.float32(w >> 32) + np.float32(0.5)) * np.float32(2.0**-32))
        expected = -NormalDist().inv_cdf(tail) * (-1 if w >> 63 else 1)
        eps = float(np.finfo(dtype).eps)
        # 1 - 2 t is exact or rounded once; what is near zero has an error in units of that
        assert abs(z - expected) <= 4 * eps * max(abs(expected), 0.25), (w, z, expected)
        assert abs(e + math.log(whole)) <= 4 * eps * max(-math.log(whole), 0.25), (w, e)


def test_normal_numbers_stay_finite_in_the_longest_tails() -> None:
    key = Counter(0).state["key"]
    seen = {"normal_float64": (-9.2, 9.2), "normal_float32": (-6.4, 6.4)}
    for name, (low, high) in seen.items():
        drawn = OPS[name].reference(np.arange(200_000, dtype=np.uint32), np.uint64(0), key)
        assert np.isfinite(drawn).all() and low < drawn.min() < -4 and 4 < drawn.max() < high


# --- the same wherever they are made
@pytest.mark.parametrize("name", DRAWS)
def test_every_way_gives_the_same_bits(name: str) -> None:
    draw = DRAWS[name]
    for size in (1, 7, 1000, (3, 5, 41), 70_001):
        results = []
        for mode in MODES.values():
            with alight.policy(**mode):
                results.append(np.asarray(draw(Counter(11), size)))
        assert all(same(result, results[0]) for result in results), size
        assert results[0].shape == np.empty(size).shape and results[0].flags.c_contiguous


@pytest.mark.parametrize("name", DRAWS)
@pytest.mark.parametrize("mode", MODES)
def test_a_draw_can_be_cut_anywhere(name: str, mode: str) -> None:
    draw = DRAWS[name]
    with alight.policy(**MODES[mode]):
        whole = np.asarray(draw(Counter(5), 3000))
        rng = Counter(5)
        parts = [draw(rng, n) for n in (1, 16, 0, 983, 2000)]
        assert same(np.concatenate([np.asarray(p) for p in parts]), whole)
        assert same(np.asarray(draw(Counter(5).advance(1234), 500)), whole[1234:1734])


def test_threads_and_long_draws_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with alight.policy(**MODES["numpy"]):
        expected = np.asarray(Counter(9).standard_normal(300_001, np.float32))
    with alight.policy(**MODES["generated"]):
        assert same(Counter(9).standard_normal(300_001, np.float32), expected)
        monkeypatch.setattr(counter_draws, "_KEPT", 1 << 10)
        monkeypatch.setattr(counter_draws, "_longest", None)
        assert same(Counter(9).standard_normal(300_001, np.float32), expected)
        shaped = Counter(9).standard_normal((3, 100_000), np.float32)
        assert same(shaped, expected[:300_000].reshape(3, -1))


@pytest.mark.skipif(cuda_on_cpu.compiler() is None, reason="no g++ to run CUDA C on the CPU with")
def test_cuda_has_the_same_bits() -> None:
    position = np.arange(5000, dtype=np.uint32)
    inputs = [position, np.uint64(2**32 - 2500)[None], np.uint64(0x123456789ABCDEF0)[None]]
    names = list(_BODIES)
    uses = [(OPS[name], (0, 1, 2), (), _BODIES[name][0]) for name in names]
    found = cuda_on_cpu.run(loop_group(inputs, uses), inputs)
    for name, result in zip(names, found, strict=True):
        assert same(result, OPS[name].reference(*inputs)), name


@pytest.mark.skipif(cuda_on_cpu.compiler() is None, reason="no g++ to run CUDA C on the CPU with")
@pytest.mark.parametrize("size", [5000, 1])
def test_cuda_has_the_same_bits_in_long_kernels(size: int) -> None:
    """A thread has one element, whose usual way is written once: among 10,000 normal numbers some
    10 are not."""
    position = np.arange(size, dtype=np.uint32)
    starts = [np.uint64(size * 2**n)[None] for n in range(6)]
    inputs = [position, *starts, np.uint64(0x123456789ABCDEF0)[None]]
    name, result = "normal_float32", np.dtype(np.float32)
    uses = [(OPS[name], (0, 1 + n, 7), (), result) for n in range(6)]
    group = loop_group(inputs, uses)
    grid = schedule(group, card_nest(group), (0,) * 14, 132)
    assert grid.elements == 1 and grid.blocks
    text = form(group, card_nest(group), grid).text()
    assert text.count("entry_usual(") == text.count("entry_element(") == 2  # written, and called
    found = cuda_on_cpu.run(group, inputs)
    for start, ours in zip(starts, found, strict=True):
        assert same(ours, OPS[name].reference(position, start, inputs[-1]))


def test_wgsl_says_what_it_lacks() -> None:
    for name in _BODIES:
        ((before, after),) = loops(OPS[name])
        reason = gap(wgsl(True, False), OPS[name], (*before, *after))
        assert reason is not None and "WGSL has no uint64" in reason


# --- as part of what is computed with them
def test_draws_fuse_with_what_uses_them() -> None:
    n = 40_000
    with alight.policy(**MODES["generated"]):
        rng = Counter(4)
        spot = alight.full(n, 100.0, np.float32)
        for _ in range(3):
            spot = spot * np.exp(0.1 + 0.2 * rng.standard_normal(n, np.float32))
        alight.reset()  # the log keeps so many decisions, and may be full
        found = np.asarray(spot)
        (row,) = alight.report().to_dict()["decisions"]  # one kernel for all
        assert row["operation"].startswith("normal_float32+multiply+add+exp+")
        rng, expected = Counter(4), np.full(n, 100.0, np.float32)
        for _ in range(3):
            z = np.asarray(rng.standard_normal(n, np.float32))
            expected = np.asarray(alight.asarray(expected) * np.exp(0.1 + 0.2 * alight.asarray(z)))
    assert same(found, expected)
    with alight.policy(**MODES["generated"]):
        alight.reset()  # the log keeps so many decisions, and may be full
        for count in (90, 51, 29):  # more turns than a kernel has room for: few kernels do for all
            for _ in range(count):
                spot = spot * np.exp(0.1 + 0.2 * rng.standard_normal(n, np.float32))
            alight.evaluate(spot)
        rows = alight.report().to_dict()["decisions"]
        long = [row["group"] for row in rows if "more" in row["operation"]]
        assert len(set(long)) <= 3 < len(long)  # of 8, 4 and 2 turns
    with alight.policy(**MODES["generated"]):
        mean = float(Counter(4).random(n).mean())
        assert mean == float(alight.asarray(np.asarray(Counter(4).random(n))).mean())


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("pure", [False, True])
def test_a_jitted_function_never_repeats_numbers(mode: str, pure: bool) -> None:
    rng = Counter(6)

    @alight.jit(pure=pure)
    def walk(x: Array) -> Array:
        for _ in range(3):
            x = x + rng.standard_normal(x.shape)
        return x

    start = np.zeros(20_000)
    with alight.policy(**MODES[mode]):
        found = [np.asarray(walk(start)) for _ in range(6)]
    assert rng.state["position"] == 6 * 3 * 20_000
    one = Counter(6)
    for result in found:
        x = np.zeros(20_000)
        for _ in range(3):
            x = x + np.asarray(one.standard_normal(20_000))
        assert same(result, x)


@pytest.mark.parametrize("mode", MODES)
def test_a_jitted_function_of_arrays_never_repeats_numbers(mode: str) -> None:
    rng = Counter(6)

    @alight.jit
    def noisy(x: Array) -> Array:
        return x + rng.random(len(x))

    with alight.policy(**MODES[mode]):
        start = alight.zeros(30_000)
        found = [np.asarray(noisy(start)) for _ in range(6)]
    one = Counter(6)
    assert all(same(result, np.asarray(one.random(30_000))) for result in found)


def test_equal_programs_with_other_constants() -> None:
    # A start that equals a key or another constant is still its own operand.
    with alight.policy(**MODES["generated"]):
        for key in (0, 7, 500):
            rng = Counter(0)
            rng.state = {**rng.state, "key": key, "position": 0}
            a, b = rng.random_raw(500), rng.random_raw(500)
            alight.evaluate(a, b)
            expected = [threefry(i, key) for i in range(1000)]
            assert np.asarray(a).tolist() + np.asarray(b).tolist() == expected


# --- their distributions
def kolmogorov(drawn: Array, cdf: Callable[[Array], Array]) -> float:
    """Return the statistic times the root of the number: above 1.95 in one of a thousand."""
    x = np.sort(np.asarray(drawn, np.float64).ravel())
    at = cdf(x)
    n = len(x)
    steps = np.arange(n)
    return float(max((at - steps / n).max(), ((steps + 1) / n - at).max()) * n**0.5)


def normal_cdf(x: Array) -> Array:
    return np.array([0.5 * math.erfc(-v / 2**0.5) for v in x.tolist()])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_draws_follow_their_distributions(dtype: Any) -> None:
    n = 200_000
    rng = Counter(20)
    assert kolmogorov(rng.random(n, dtype), lambda x: x) < 1.95
    assert kolmogorov(rng.standard_normal(n, dtype), normal_cdf) < 1.95
    assert kolmogorov(rng.standard_exponential(n, dtype), lambda x: -np.expm1(-x)) < 1.95
    z = np.asarray(rng.standard_normal(n, dtype), np.float64)
    for power, moment, spread in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96), (6, 15, 10170)):
        assert abs((z**power).mean() - moment) < 4 * (spread / n) ** 0.5
    both = np.asarray(rng.standard_normal((2, n), dtype), np.float64)
    assert abs((both[0] * both[1]).mean()) < 4 / n**0.5
    assert abs((z[1:] * z[:-1]).mean()) < 4 / n**0.5


def test_integers_of_a_range_are_uniform() -> None:
    counts = np.bincount(np.asarray(Counter(21).integers(10, size=100_000)), minlength=10)
    assert counts.size == 10
    assert ((counts - 10_000.0) ** 2 / 10_000).sum() < 27.9  # chi squared of 9, one of a thousand


def test_no_two_elements_have_the_same_bits() -> None:
    first = np.asarray(Counter(1).random_raw(100_000))
    second = np.asarray(Counter(2).random_raw(100_000))
    assert len(np.unique(np.concatenate([first, second]))) == 200_000


# --- manners
def test_state_goes_with_the_counter() -> None:
    rng = Counter(7)
    rng.random(10)
    for other in (pickle.loads(pickle.dumps(rng)), copy.copy(rng), copy.deepcopy(rng)):
        assert other.state == rng.state and same(other.random(5), rng.random(5))
        rng.advance(-5)
    again = Counter(8)
    again.state = rng.state
    assert same(again.random(5), rng.random(5))
    assert same(rng.advance(-5).random(5), again.advance(-5).random(5))
    with pytest.raises(ValueError, match="Threefry"):
        rng.state = np.random.Philox(1).state
    assert "position=" in repr(rng)


def test_streams_that_were_spawned_are_apart() -> None:
    rng = Counter(7)
    keys = {c.state["key"] for c in (*rng.spawn(3), *rng.spawn(3), rng)}
    assert len(keys) == 7
    assert [c.state for c in Counter(7).spawn(2)] == [c.state for c in Counter(7).spawn(2)]
    ahead = rng.jumped(2)
    assert ahead.state == {**rng.state, "position": 2 * 2**48}
    seed = np.random.SeedSequence(7)
    assert Counter(seed).state == rng.state == Counter(np.int64(7)).state
    assert Counter([1, 2]).state != Counter([2, 1]).state != Counter().state


def test_threads_share_a_counter_without_repeats() -> None:
    rng = Counter(3)
    with ThreadPoolExecutor(4) as pool:
        parts = list(pool.map(lambda _: np.asarray(rng.random_raw(50)), range(200)))
    found = np.sort(np.concatenate(parts))
    assert same(found, np.sort(np.asarray(Counter(3).random_raw(10_000))))


@pytest.mark.parametrize(
    ("method", "args", "kwargs"),
    [
        ("random", (), {}),
        ("random", (), {"size": (2, 0, 3)}),
        ("random", (), {"size": ()}),
        ("random", (3,), {"dtype": "f4"}),
        ("random", (3,), {"dtype": np.int32}),
        ("random", (-3,), {}),
        ("random", (2.5,), {}),
        ("standard_normal", (), {"dtype": np.float32}),
        ("standard_normal", (4,), {"dtype": np.float16}),
        ("standard_exponential", ((2, 2),), {}),
        ("uniform", (), {}),
        ("uniform", (0, np.inf), {}),
        ("uniform", ([0, 1], 2), {}),
        ("uniform", ([0, 1], 2), {"size": 3}),
        ("uniform", ([[0], [1]], [2, 3, 4]), {"size": (5, 2, 3)}),
        ("normal", (1, 2), {"size": 5}),
        ("normal", (1, -2), {"size": 5}),
        ("normal", (0, [1.0, 2.0]), {}),
        ("exponential", (2.0,), {"size": 3}),
        ("exponential", (-2.0,), {"size": 3}),
        ("integers", (5,), {}),
        ("integers", (5, 2), {}),
        ("integers", (5, 5), {"size": 4}),
        ("integers", (5, 5), {"endpoint": True, "size": 4}),
        ("integers", (0, 300), {"dtype": np.uint8, "size": 4}),
        ("integers", (-1, 3), {"dtype": np.uint8, "size": 4}),
        ("integers", (0, 256), {"dtype": np.uint8, "size": 4}),
        ("integers", (-(2**63), -(2**63) + 4), {"size": (2, 3)}),
        ("integers", (2**64 - 5, 2**64), {"dtype": np.uint64, "size": 4}),
        ("integers", (0, 2), {"dtype": np.float64}),
    ],
)
def test_a_counter_answers_as_numpys_generator_does(method: str, args: Any, kwargs: Any) -> None:
    expected: Any = None
    error: Exception | None = None
    try:
        expected = getattr(np.random.default_rng(1), method)(*args, **kwargs)
    except (TypeError, ValueError, OverflowError) as raised:
        error = raised
    rng = Counter(1)
    if error is not None:
        with pytest.raises(type(error)):
            getattr(rng, method)(*args, **kwargs)
        assert rng.state["position"] == 0
        return
    for floor in (0, 10**6):
        with alight.policy(floor=floor):
            found = getattr(rng, method)(*args, **kwargs)
        assert np.asarray(found).dtype == np.asarray(expected).dtype
        assert np.shape(found) == np.shape(expected)
        if kwargs.get("size") is None and not np.ndim(expected):
            assert type(found) is type(expected)
        elif np.size(expected):
            low, high = np.min(expected), np.max(expected)
            if method == "integers":
                first, last = args if len(args) == 2 else (0, *args)
                assert first <= np.min(found) and np.max(found) <= last, (low, high)


def test_an_out_array_is_filled() -> None:
    out = alight.zeros((2, 500))
    assert Counter(1).random(out=out) is out
    assert same(out, Counter(1).random((2, 500)))
    plain = np.zeros((2, 500))
    view = plain[:, ::2]
    Counter(1).standard_normal(out=view)
    assert same(view.copy(), Counter(1).standard_normal((2, 250))) and not plain[:, 1::2].any()
    with pytest.raises(TypeError, match="wrong type"):
        Counter(1).random(out=plain, dtype=np.float32)
    with pytest.raises(ValueError, match="size must match"):
        Counter(1).random(3, out=plain)


def test_what_would_be_biased_is_refused() -> None:
    with pytest.raises(ValueError, match=r"random_raw"):
        Counter(1).integers(2**32 + 1, size=3)
    found = np.asarray(Counter(1).integers(2**32, size=2000))
    assert same(found, (np.asarray(Counter(1).random_raw(2000)) >> np.uint64(32)).astype(np.int64))
    with pytest.raises(ValueError, match=r"2\*\*32"):
        Counter(1).random((2**17, 2**16))


def test_errors_that_are_raised_at_once() -> None:
    with alight.policy(floor=0), np.errstate(all="raise"):
        assert same(Counter(1).standard_normal(2000), Counter(1).standard_normal(2000))
