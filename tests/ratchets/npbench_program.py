"""Run one npbench program through one door in this process, and compare all it made with NumPy's.

A child of ``npbench.py``: ``python -m ratchets.npbench_program CHECKOUT PROGRAM DOOR --out FILE``.
A door is ``np:MODULE`` (the program's ``np`` is the module), ``deco:MODULE:NAME`` (a decorator on
the unmodified function) or ``duck:MODULE:NAME`` (a conversion of its arguments).
"""

from __future__ import annotations

import argparse
import copy
import importlib
import importlib.util
import json
import statistics
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from types import ModuleType
from typing import Any

import numpy as np

__all__ = ["main"]

_ROUNDINGS = 32  # of the largest element, by which sums in another order may differ


@dataclass(frozen=True, slots=True)
class Program:
    """What the checkout says of a program, and the arguments that a preset gives it."""

    name: str
    info: Mapping[str, Any]
    source: Path
    arguments: Mapping[str, Any]

    @classmethod
    def load(cls, checkout: Path, name: str, preset: str) -> Program:
        """Return the program; its data are made by its own initialisation, in NumPy."""
        described = (checkout / "bench_info" / f"{name}.json").read_text(encoding="utf-8")
        info = json.loads(described)["benchmark"]
        folder = checkout / "npbench" / "benchmarks" / info["relative_path"]
        arguments = dict(info["parameters"][preset])
        if start := info.get("init"):
            module = _module(folder / f"{info['module_name']}.py", f"{name}_data")
            make = getattr(module, start["func_name"])
            made = make(*(arguments[key] for key in start["input_args"]))
            keys = start["output_args"]
            arguments.update(zip(keys, made if len(keys) > 1 else (made,), strict=True))
        return cls(name, info, folder / f"{info['module_name']}_numpy.py", arguments)

    def function(self, owner: str) -> tuple[ModuleType, Callable[..., Any]]:
        """Return a fresh copy of the program's module, and its function."""
        module = _module(self.source, f"{self.name}_{owner}")
        return module, getattr(module, self.info["func_name"])


@dataclass(frozen=True, slots=True)
class Door:
    """A function to call, and what is done to each array that it is given."""

    call: Callable[..., Any]
    convert: Callable[[Any], Any]

    @classmethod
    def open(cls, program: Program, door: str) -> Door:
        """Return the program behind a door such as ``np:alight``."""
        kind, _, place = door.partition(":")
        module, function = program.function(kind)
        if kind == "np":
            namespace = importlib.import_module(place)
            for name, value in list(vars(module).items()):
                if value is np:
                    setattr(module, name, namespace)
            return cls(function, namespace.asarray)
        holder, _, name = place.partition(":")
        made = getattr(importlib.import_module(holder), name)
        if kind == "deco":
            return cls(made(function), _unchanged)
        if kind == "duck":
            return cls(function, made)
        raise ValueError(f"{door!r} is no door. Fix: np:MODULE, deco:MODULE:NAME, duck:MODULE:NAME")


@dataclass(frozen=True, slots=True)
class Run:
    """One call: its seconds until all results are in host memory, and everything it made."""

    seconds: float
    made: Mapping[str, Any]


def run(program: Program, door: Door) -> Run:
    """Call the program with fresh data. What it made includes every array it was given."""
    arrays = program.info["array_args"]
    given = dict(program.arguments)
    for key in arrays:
        value = copy.deepcopy(given[key])
        given[key] = door.convert(value) if isinstance(value, np.ndarray) else value
    ordered = [given[key] for key in program.info["input_args"]]
    started = perf_counter()
    returned = door.call(*ordered)
    made = dict(_flat("result", returned))
    # A lazy namespace has done nothing yet: results and changed arguments belong to the time.
    made |= {f"argument {key}": np.asarray(given[key]) for key in program.info["output_args"]}
    seconds = perf_counter() - started
    made |= {f"argument {key}": np.asarray(given[key]) for key in arrays}
    return Run(seconds, made)


def differences(
    expect: Mapping[str, Any], actual: Mapping[str, Any], info: Mapping[str, Any]
) -> tuple[list[str], list[str]]:
    """Return what is wrong with the actual values, and what is only worth a note (dtypes)."""
    wrong = [f"{name}: missing" for name in expect.keys() - actual.keys()]
    wrong += [f"{name}: not made by NumPy" for name in actual.keys() - expect.keys()]
    notes = []
    for name in expect.keys() & actual.keys():
        theirs, ours = expect[name], actual[name]
        if theirs.shape != ours.shape:
            wrong.append(f"{name}: shape {ours.shape}, NumPy has {theirs.shape}")
            continue
        if theirs.dtype != ours.dtype:
            notes.append(f"{name}: dtype {ours.dtype}, NumPy has {theirs.dtype}")
        close, found = _compared(theirs, ours, info)
        if found:
            (notes if close else wrong).append(f"{name}: {found}")
    return sorted(wrong), sorted(notes)


def _compared(theirs: Any, ours: Any, info: Mapping[str, Any]) -> tuple[bool, str]:
    """Tell whether the values are within the program's tolerance, and what there is to say."""
    # npbench lets any small error of the whole array pass; that would hide one wrong element. Here
    # every element counts, against its own size and the roundings of the largest one.
    largest = np.max(np.abs(theirs), initial=0.0, where=np.isfinite(theirs))
    rounding = np.finfo(theirs.dtype).eps * float(largest) if theirs.dtype.kind in "fc" else 0.0
    absolute = max(info.get("atol", 1e-8), _ROUNDINGS * rounding)
    if np.allclose(ours, theirs, rtol=info.get("rtol", 1e-5), atol=absolute, equal_nan=True):
        return True, ""
    wide = np.result_type(theirs, np.float64)
    gap = np.linalg.norm(np.ravel(theirs.astype(wide) - ours.astype(wide)))
    apart = float(gap / np.linalg.norm(np.ravel(theirs.astype(wide))))
    # A chaotic program says so by a tolerance of its own. Not `>` the other way: a NaN is far.
    return apart < info.get("norm_error", 0.0), f"relative error {apart:.3g}"


def measure(program: Program, door: str, rounds: int, budget_seconds: float) -> dict[str, Any]:
    """Return whether first and last call equal NumPy's, and the seconds of both, interleaved."""
    numpy_door = Door(program.function("numpy")[1], _unchanged)
    own_door = Door.open(program, door)
    expect = run(program, numpy_door)
    first = last = run(program, own_door)
    wrong, notes = differences(expect.made, first.made, program.info)
    numpy_seconds: list[float] = []
    own_seconds: list[float] = []
    until = perf_counter() + budget_seconds
    while not own_seconds or (len(own_seconds) < rounds and perf_counter() < until):
        numpy_seconds.append(run(program, numpy_door).seconds)
        last = run(program, own_door)
        own_seconds.append(last.seconds)
    # A plan that was recorded in the first call is replayed later, and may go wrong only then.
    later = differences(expect.made, last.made, program.info)[0]
    wrong += [f"after {len(own_seconds)} calls: {each}" for each in later if each not in wrong]
    return {
        "valid": not wrong,
        "wrong": wrong,
        "notes": notes,
        "first_seconds": first.seconds,
        "minimum_seconds": min(own_seconds),
        "median_seconds": statistics.median(own_seconds),
        "numpy_minimum_seconds": min(numpy_seconds),
        "numpy_median_seconds": statistics.median(numpy_seconds),
        "rounds": len(own_seconds),
    }


def main() -> None:
    """Run what the command line says and write the findings, or the error, as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("program")
    parser.add_argument("door")
    parser.add_argument("--preset", default="S")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--budget-seconds", type=float, default=5.0)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    try:
        program = Program.load(given.checkout, given.program, given.preset)
        found = measure(program, given.door, given.rounds, given.budget_seconds)
    except Exception as error:  # whatever a target raises is a finding
        traceback.print_exc()
        lines = str(error).splitlines() or [""]
        found = {"valid": False, "wrong": [f"{type(error).__name__}: {lines[0][:200]}"]}
    given.out.write_text(json.dumps(found), encoding="utf-8")


def _module(path: Path, name: str) -> ModuleType:
    """Return a module run from its file; the files beside it can be imported by it."""
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(path.parent))
    return module


def _flat(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield every array in a result, in host memory, with its place in it."""
    if value is None:
        return
    if isinstance(value, (list, tuple)):
        for number, part in enumerate(value):
            yield from _flat(f"{name}[{number}]", part)
    else:
        yield name, np.asarray(value)


def _unchanged(value: Any) -> Any:
    return value


if __name__ == "__main__":
    main()
