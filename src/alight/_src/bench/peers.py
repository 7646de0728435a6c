"""Who is timed: alight, NumPy and the other ways to run the same NumPy source on a CPU.

Each peer is one class. It imports its package when it is made, so an absent one is a reason and not
an error, and gives a call without arguments that has done all its work when it returns. Every peer
gets the same function: swapped to its own namespace (JAX), compiled from its bytecode (Numba,
torch.compile), or stated once more as an expression where the source cannot be read (NumExpr).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from importlib import import_module
from inspect import signature
from types import FunctionType
from typing import Any, ClassVar

import numpy as np

from alight._src.base.formatting import readable_seconds
from alight._src.bench import programs
from alight._src.bench.inputs import Arrays
from alight._src.bench.programs import Program

__all__ = ["HOST", "PEERS", "CannotRun", "Peer", "with_names"]

HOST = "cpu"

Call = Callable[[], Any]


class CannotRun(Exception):
    """A peer has no way to run this program; the text says why."""


class Peer:
    """One way to run the programs. ``package`` is what has to be installed for it."""

    package: ClassVar[str]
    timed: ClassVar[bool] = True  # False: it is there for its results

    def __init__(self) -> None:
        self.library: Any = import_module(self.package)
        self._made: dict[Any, Any] = {}

    def _once(self, key: Any, make: Callable[[], Any]) -> Any:
        """Return the one compiled function for a program, as users have it."""
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    def call(self, program: Program, arrays: Arrays) -> Call:
        """Return the program's call on these arrays; compiling is left to the first one."""
        raise NotImplementedError("call: a subclass gives the call as its package has it")

    def settled(self, program: Program) -> bool:
        """Tell whether calls of a program go the way they will go from now on."""
        return True

    def settle(self) -> None:
        """Return when nothing is done in the background any more."""

    def explain(self) -> list[str]:
        """Return what ran where since the arrays were given, if the peer can tell."""
        return []

    def settings(self) -> dict[str, Any]:
        """Return what is not the default about this peer, and how many threads it uses."""
        return {}

    def host(self, result: Any) -> tuple[np.ndarray[Any, Any], ...]:
        """Return the outputs as ndarrays."""
        return tuple(np.asarray(self.to_host(output)) for output in several(result))

    def to_host(self, output: Any) -> Any:
        """Return an output as something that NumPy takes."""
        return output


class Alight(Peer):
    """The program under `alight.jit`."""

    package = "alight"

    def call(self, program: Program, arrays: Arrays) -> Call:
        """Return the jitted function's call."""
        jitted = self._once(program.name, lambda: self.library.jit(program.function))
        self.library.reset()
        return lambda: jitted(*arrays)

    def settled(self, program: Program) -> bool:
        """Tell whether alight is done with choosing between NumPy and kernels."""
        return bool(self._made[program.name].settled)

    def settle(self) -> None:
        """Wait for kernels that are being compiled."""
        from alight._src.run import kernels

        kernels.settle()

    def explain(self) -> list[str]:
        """Return each kind of decision, with its losers, and what went to NumPy."""
        found = self.library.report().to_dict()
        rows: dict[tuple[str, str, str], list[float]] = {}
        for row in found["decisions"]:
            key = (row["operation"], row["implementation"], row["reason"])
            counted = rows.setdefault(key, [0, 0.0])
            counted[0] += 1
            counted[1] += row.get("measured_seconds") or 0.0
        lines = [
            f"{where} ({why}) x{count:.0f} {readable_seconds(seconds)}: {what}"
            for (what, where, why), (count, seconds) in rows.items()
        ]
        for part, name in (("exits", "name"), ("fallbacks", "what"), ("demotions", "what")):
            lines += [
                f"{part}: {row[name]} x{row['count']} {row.get('reason', '')}".rstrip()
                for row in found[part]
            ]
        return lines


class NumPy(Peer):
    """The program as it stands: the oracle, and what a user has without doing anything."""

    package = "numpy"

    def call(self, program: Program, arrays: Arrays) -> Call:
        """Return the plain call."""
        return lambda: program.function(*arrays)


class NumExpr(Peer):
    """The program as expressions for `numexpr.evaluate`, one for each output."""

    package = "numexpr"

    def call(self, program: Program, arrays: Arrays) -> Call:
        """Return the evaluation of the expressions, one after the other."""
        if not program.expressions:
            raise CannotRun("not an expression: NumExpr has no axes, slices or loops")
        given = dict(zip(signature(program.function).parameters, arrays, strict=True))
        # A Python float is double to it, and would make float32 work float64.
        kind = arrays[0].dtype.type
        nothing: dict[str, Any] = {}
        parts = []
        for text in program.expressions:
            names, constants = _constants_named(text, kind)
            parts.append((names, {**given, **constants}))
        evaluate = self.library.evaluate
        if len(parts) == 1:
            only, values = parts[0]
            return lambda: evaluate(only, local_dict=values, global_dict=nothing)
        return lambda: tuple(evaluate(t, local_dict=v, global_dict=nothing) for t, v in parts)

    def settings(self) -> dict[str, Any]:
        """Return its threads."""
        return {"threads": self.library.nthreads}


def _constants_named(text: str, kind: type[np.generic]) -> tuple[str, dict[str, Any]]:
    """Return an expression with its numbers replaced by names of scalars of one dtype."""
    import re

    found: dict[str, str] = {}

    def name(match: re.Match[str]) -> str:
        return found.setdefault(match[0], f"k{len(found)}")

    named = re.sub(r"(?<![\w.])\d+(?:\.\d*)?(?:e-?\d+)?", name, text)
    return named, {label: np.asarray(float(digits), kind) for digits, label in found.items()}


class Numba(Peer):
    """The program under `njit(parallel=True)`, fast maths off."""

    package = "numba"

    def call(self, program: Program, arrays: Arrays) -> Call:
        """Return the compiled function's call."""
        kind = arrays[0].dtype.type
        compiled = self._once((program.name, kind), lambda: self._compiled(program, kind))
        return lambda: compiled(*arrays)

    def _compiled(self, program: Program, kind: type[np.generic]) -> Any:
        function: Any = program.function
        # It types a float in the source as float64 and knows no weak scalars: with constants of the
        # arrays' dtype the same source stays in that dtype.
        code = function.__code__
        constants = tuple(kind(c) if isinstance(c, float) else c for c in code.co_consts)
        code = code.replace(co_consts=constants)
        function = FunctionType(code, function.__globals__, function.__name__)
        return self.library.njit(parallel=True, fastmath=False)(function)

    def settings(self) -> dict[str, Any]:
        """Return its threads and how it runs them, once it has."""
        try:
            layer = self.library.threading_layer()
        except ValueError:
            layer = "not started"
        return {"threads": self.library.get_num_threads(), "threading_layer": layer}


class Jax(Peer):
    """The program with `jax.numpy` for `np`, under `jit`, waiting for the result."""

    package = "jax"
    platform: ClassVar[str | None] = "cpu"  # None: JAX's own choice

    def __init__(self) -> None:
        if self.platform is not None:
            os.environ.setdefault("JAX_PLATFORMS", self.platform)
        super().__init__()
        import jax.numpy

        jax.config.update("jax_enable_x64", True)

    def call(self, program: Program, arrays: Arrays) -> Call:
        """Return the jitted function's call, to the end, on arrays that JAX has already."""
        jax = self.library
        jitted = self._once(program.name, lambda: jax.jit(with_names(program.function, jax.numpy)))
        given = [jax.numpy.asarray(array) for array in arrays]
        wait = jax.block_until_ready
        wait(given)
        return lambda: wait(jitted(*given))

    def settings(self) -> dict[str, Any]:
        """Return its precision setting."""
        return {"jax_enable_x64": True, "threads": "one for each core"}


class TorchCompile(Peer):
    """The program under `torch.compile`, which reads NumPy source; compiled for each shape."""

    package = "torch"

    def __init__(self) -> None:
        if os.name == "posix" and not any(map(shutil.which, (os.environ.get("CXX", "g++"),))):
            raise ImportError("torch.compile needs a C++ compiler on a CPU, and there is no g++")
        super().__init__()
        import torch._dynamo  # ships no types

        # Sizes and dtypes of one program are so many variants; beyond 8 it would give up.
        torch._dynamo.config.recompile_limit = 64

    def call(self, program: Program, arrays: Arrays) -> Call:
        """Return the compiled function's call; a graph that breaks would be NumPy's own work."""
        compiled = self._once(
            program.name,
            lambda: self.library.compile(program.function, fullgraph=True, dynamic=False),
        )
        return lambda: compiled(*arrays)

    def settings(self) -> dict[str, Any]:
        """Return its threads and the compiler it calls."""
        return {
            "threads": self.library.get_num_threads(),
            "compiler": os.environ.get("CXX", "g++"),
            "fullgraph": True,
            "dynamic": False,
        }


# NumPy first: it makes the results that the others are compared with.
PEERS: Mapping[str, type[Peer]] = {
    "numpy": NumPy,
    "alight": Alight,
    "numexpr": NumExpr,
    "numba": Numba,
    "jax": Jax,
    "torch": TorchCompile,
}


def with_names(function: Callable[..., Any], names: Any) -> Callable[..., Any]:
    """Return a program with another ``np``, in the functions of its module that it calls too."""
    swapped: dict[str, Any] = {**vars(programs), "np": names}
    for name, item in vars(programs).items():
        if isinstance(item, FunctionType) and item.__module__ == programs.__name__:
            swapped[name] = FunctionType(item.__code__, swapped, name, item.__defaults__)
    found: Callable[..., Any] = swapped[function.__name__]
    return found


def several(result: Any) -> tuple[Any, ...]:
    """Return a program's outputs, of which it may have one."""
    return result if isinstance(result, tuple) else (result,)


def package_version(peer: Peer) -> str:
    """Return the version of what a peer runs on."""
    return str(peer.library.__version__)
