"""What has no axes is a scalar or an array, as NumPy has it, behind `jit` and `alight run`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import alight

CALLS: dict[str, Callable[[Any], Any]] = {
    "tensordot": lambda a: np.tensordot(a, a, 1),
    "tensordot2": lambda a: np.tensordot(a.reshape(-1, 2), a.reshape(-1, 2), 2),
    "dot": lambda a: np.dot(a, a),
    "vdot": lambda a: np.vdot(a, a),
    "inner": lambda a: np.inner(a, a),
    "einsum": lambda a: np.einsum("i,i->", a, a),
    "einsum1": lambda a: np.einsum("i->", a),
    "einsumij": lambda a: np.einsum("ij->", a.reshape(-1, 2)),
    "matmul": lambda a: a @ a,
    "vecdot": lambda a: np.vecdot(a, a),
    "trace": lambda a: np.trace(a.reshape(-1, 2)),
    "sum": lambda a: a.sum(),
    "ptp": lambda a: np.ptp(a),
    "mean": lambda a: np.mean(a),
    "median": lambda a: np.median(a),
    "squeeze": lambda a: np.squeeze(a[:1]),
    "where": lambda a: np.where(a[0] > 1, 1.0, a[1]),
    "copy": lambda a: np.copy(a[3]),
    "asarray": lambda a: np.asarray(a.sum()),
    "array": lambda a: np.array(a.mean()),
    "take": lambda a: np.take(a, 3),
    "take2": lambda a: a.take(3),
    "reshape": lambda a: a[:1].reshape(()),
    "reshape_of_sum": lambda a: np.reshape(a.sum(), ()),
    "reshaped_sum": lambda a: a.sum().reshape(()),
    "reshaped_to_one": lambda a: a.sum().reshape(1, -1),
    "nan_to_num_of_sum": lambda a: np.nan_to_num(a.sum()),
    "nan_to_num_whole": lambda a: np.nan_to_num((a > 1).sum()),
    "nan_to_num_view": lambda a: np.nan_to_num(a[3, ...]),
    "roll": lambda a: np.roll(a.sum(), 1),
    "tile": lambda a: np.tile(a.sum(), ()),
    "pad": lambda a: np.pad(a.sum(), 0),
    "broadcast_arrays": lambda a: np.broadcast_arrays(a.sum(), a.max())[0],
    "ell": lambda a: a[3, ...],
    "sumk": lambda a: a.sum(keepdims=True),
    "real": lambda a: np.real(a.sum()),
    "imag": lambda a: np.imag(a[3, ...]),
    "clip": lambda a: np.clip(a.sum(), 0, 1),
    "linalgnorm": lambda a: np.linalg.norm(a),
    "det": lambda a: np.linalg.det(a[:4].reshape(2, 2)),
    "multi_dot": lambda a: np.linalg.multi_dot([a, a]),
    "kron": lambda a: np.kron(a[0], a[1]),
    "round": lambda a: np.round(a.sum()),
    "add": lambda a: np.add(a[0, ...], 1),
    "average": lambda a: np.average(a),
    "trapezoid": lambda a: np.trapezoid(a),
    "prod": lambda a: a.prod(),
    "choose": lambda a: np.choose(1, [a[0], a[1]]),
    "select": lambda a: np.select([a[0] > 1], [a[1]]),
    "full_like": lambda a: np.full_like(a.sum(), 2),
    "zeros_like": lambda a: np.zeros_like(a.sum()),
    "astype": lambda a: a.sum().astype("f4"),
    "astype2": lambda a: a[2, ...].astype("f4"),
    "copym": lambda a: a[2, ...].copy(),
    "copys": lambda a: a.sum().copy(),
    "neg": lambda a: -a[2, ...],
    "cumsum": lambda a: np.cumsum(a)[-1],
    "diff": lambda a: np.diff(a)[0],
    "interp": lambda a: np.interp(a[0], a, a),
    "searchsorted": lambda a: np.searchsorted(a, a[3]),
    "argmax": lambda a: a.argmax(),
    "argmax2": lambda a: np.argmax(a),
    "count": lambda a: np.count_nonzero(a),
    "any": lambda a: np.any(a),
    "polyval": lambda a: np.polyval([1, 2], a[2]),
    "correlate": lambda a: np.correlate(a, a),
    "quantile": lambda a: np.quantile(a, 0.3),
    "std": lambda a: np.std(a),
    "isclose": lambda a: np.isclose(a[0], a[1]),
    "nan_to_num": lambda a: np.nan_to_num(a[0]),
    "sort": lambda a: np.sort(a)[0],
    "i0": lambda a: np.i0(a[0]),
    "sinc": lambda a: np.sinc(a[0]),
    "angle": lambda a: np.angle(a[0]),
    "unwrap": lambda a: np.unwrap(a)[0],
    "broadcast_to": lambda a: np.broadcast_to(a.sum(), ()),
    "expand": lambda a: np.expand_dims(a.sum(), ()),
    "moveaxis": lambda a: np.transpose(a.sum()),
    "ravel": lambda a: np.ravel(a.sum()),
    "atleast": lambda a: np.atleast_1d(a.sum()),
    "outer": lambda a: np.outer(a[0], a[1]),
    "fix": lambda a: np.fix(a[0]),
    "isreal": lambda a: np.isreal(a[0]),
    "real_if": lambda a: np.real_if_close(a[0]),
    "append": lambda a: np.append(a[0], 1),
    "tri": lambda a: np.heaviside(a[0], a[1]),
    "squeezem": lambda a: a[:1].squeeze(),
    "min": lambda a: np.amin(a),
    "nanmax": lambda a: np.nanmax(a),
    "tensordotm": lambda a: np.tensordot(a.reshape(-1, 2), a[:2], ((1,), (0,))).shape,
    "linalg.vecdot": lambda a: np.linalg.vecdot(a, a),
    "linalg.trace": lambda a: np.linalg.trace(a[:4].reshape(2, 2)),
    "linalg.tensordot": lambda a: np.linalg.tensordot(a, a, axes=1),
    "part's imag": lambda a: a[5, ...].imag,
    "part's real": lambda a: a[5, ...].real,
    "part's turn": lambda a: a[5, ...].T,
    "imag of part": lambda a: a.imag[3, ...],
    "imag of element": lambda a: a.imag[3],
    "imag of sum": lambda a: a.sum().imag,
    "part's part": lambda a: a[5, ...][...],
    "part's element": lambda a: a[5, ...][()],
    "part's view": lambda a: a[5, ...].view("i8"),
    "part's conj": lambda a: a[5, ...].conj(),
    "part's clip": lambda a: a[5, ...].clip(0, 1),
    "part's mean": lambda a: a[5, ...].mean(),
    "part's round": lambda a: a[5, ...].round(2),
    "part's byteswap": lambda a: a[5, ...].byteswap(),
    "sum's turn": lambda a: np.squeeze(a.sum()),
}


def _kind(made: Any) -> tuple[Any, ...]:
    """Return what a result is: the type of a scalar; of an array what its flags say, too."""
    if isinstance(made, np.generic):
        return (type(made).__name__, made)
    if not hasattr(made, "flags"):
        return (type(made).__name__,)
    return (
        "array",
        made.ndim,
        made.flags.writeable,
        made.dtype.name,
        float(np.ravel(made)[0].real),
    )


@pytest.mark.parametrize("floor", [0, 1000])
@pytest.mark.parametrize("name", CALLS)
def test_jitted_functions_give_scalars_where_numpy_does(name: str, floor: int) -> None:
    call = CALLS[name]
    for size in (10, 100_000):
        array = np.arange(float(size)) + 1
        expected = _kind(call(array))
        jitted = alight.jit(call)
        with alight.policy(floor=floor):
            for _ in range(3):
                found = _kind(jitted(array))
                assert found[:-1] == expected[:-1]
                np.testing.assert_allclose(found[-1], expected[-1], 1e-9) if len(
                    found
                ) > 1 else None


_SCRIPT = """
import numpy as np
import warnings
warnings.simplefilter("ignore")
CALLS = {
%s
}
array = np.arange(100_000.0) + 1
array = array * 1
for name, call in CALLS.items():
    made = call(array)
    what = type(made).__name__ if isinstance(made, np.generic) or not hasattr(made, "flags") else (
        "array", made.ndim, made.flags.writeable, made.dtype.name)
    print(name, what)
"""


@pytest.mark.parametrize("floor", ["0", "1000"])
def test_scripts_have_scalars_where_numpy_does(floor: str, tmp_path: Path) -> None:
    lines = Path(__file__).read_text().split("CALLS: dict", 1)[1].split("\n}\n", 1)[0]
    script = tmp_path / "script.py"
    script.write_text(_SCRIPT % lines.split("{", 1)[1])
    told = []
    for start in ([sys.executable], [sys.executable, "-m", "alight", "run"]):
        made = subprocess.run(
            [*start, str(script)],
            capture_output=True,
            text=True,
            timeout=240,
            env={**os.environ, "ALIGHT_FLOOR_ALL": floor},
        )
        assert made.returncode == 0, made.stderr
        told.append(made.stdout.splitlines())
    assert told[1] == told[0]
