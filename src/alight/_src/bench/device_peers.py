"""Who is timed on a device: every peer's arrays lie there before the clock starts, and a call is
over when the device has done it.

The same source goes to each: with another ``np`` (CuPy, JAX), or through its bytecode
(torch.compile, which takes tensors for arrays where it is told to).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from alight._src.bench.inputs import Arrays
from alight._src.bench.peers import (
    HOST,
    PEERS,
    Alight,
    Call,
    CannotRun,
    Jax,
    NumPy,
    Peer,
    TorchCompile,
    several,
    with_names,
)
from alight._src.bench.programs import Program
from alight.backends import registry

__all__ = ["peers_on"]


class _ThereAlight(Alight):
    """The program under `alight.jit`, which chooses where; the arrays lie on the device only."""

    device: ClassVar[str]

    def call(self, program: Program, arrays: Arrays) -> Call:
        """Return the jitted function's call, to the end of what the device was given."""
        alight = self.library
        with alight.policy(force=self.device, floor=0):
            there = tuple([alight.positive(alight.asarray(array)) for array in arrays])
            alight.evaluate(*there)
        run = super().call(program, there)
        evaluate = alight.evaluate

        def call() -> Any:
            result = run()
            evaluate(*several(result), wait=True)
            return result

        return call


class CuPy(Peer):
    """The program with `cupy` for `np`, waiting for the device."""

    package = "cupy"

    def _function(self, program: Program) -> Callable[..., Any]:
        return with_names(program.function, self.library)

    def call(self, program: Program, arrays: Arrays) -> Call:
        """Return the call, to the end, on arrays that lie on the device."""
        function = self._once(program.name, lambda: self._function(program))
        given = [self.library.asarray(array) for array in arrays]
        wait = self.library.cuda.get_current_stream().synchronize

        def call() -> Any:
            result = function(*given)
            wait()
            return result

        return call

    def to_host(self, output: Any) -> Any:
        """Return an output as an ndarray."""
        return self.library.asnumpy(output)


class CuPyFuse(CuPy):
    """The program under `cupy.fuse`: one kernel of elementwise operations and a reduction."""

    def _function(self, program: Program) -> Callable[..., Any]:
        if program.family == "library":
            raise CannotRun("cupy.fuse has no library calls")
        fused: Callable[..., Any] = self.library.fuse()(super()._function(program))
        return fused


class _Oracle(NumPy):
    """NumPy on the host, whose results are compared with."""

    timed = False


class _ThereJax(Jax):
    """The program under `jax.jit` on JAX's own choice of device, the accelerator."""

    platform = None

    def __init__(self) -> None:
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # others need memory too
        super().__init__()
        if self.library.default_backend() == "cpu":
            raise ImportError("jax finds no accelerator")


class _ThereTorch(TorchCompile):
    """The program under `torch.compile`, its arrays being tensors that lie on the device."""

    def __init__(self) -> None:
        super().__init__()
        import torch._numpy  # what torch.compile itself reads NumPy source as

        self._names: Any = torch._numpy

    def call(self, program: Program, arrays: Arrays) -> Call:
        """Return the compiled function's call, to the end, on tensors that lie on the device."""
        torch = self.library
        place = "cuda" if torch.cuda.is_available() else "cpu"
        given = [torch.from_numpy(array).to(place) for array in arrays]
        compiled = self._once(program.name, lambda: self._compiled(program, given))

        def call() -> Any:
            result = compiled(*given)
            if place == "cuda":
                torch.cuda.synchronize()
            return result

        return call

    def _compiled(self, program: Program, given: list[Any]) -> Callable[..., Any]:
        """Return the program as one graph; where torch finds none, with torch's own names for
        NumPy's, in as many graphs as it takes: all of it is torch's own work still."""
        torch, names = self.library, self._names
        whole = torch.compile(
            torch.compiler.wrap_numpy(program.function), fullgraph=True, dynamic=False
        )
        try:
            whole(*given)
        except Exception:  # of torch's compilers, which raise anything
            function = with_names(program.function, names)

            def there(*tensors: Any) -> Any:
                result = function(*map(names.asarray, tensors))
                return tuple([names.asarray(output).tensor for output in several(result)])

            whole = torch.compile(there, dynamic=False)
        made: Callable[..., Any] = whole
        return made

    def to_host(self, output: Any) -> Any:
        """Return an output on the host."""
        return output.cpu()


def peers_on(device: str) -> Mapping[str, type[Peer]]:
    """Return who is timed: on the host, or with arrays that lie on a device, where NumPy makes the
    results to compare with and no times.

    Raises DeviceUnavailable where there is no such device.
    """
    if device == HOST:
        return PEERS
    registry.device(device)
    ours = type("Alight", (_ThereAlight,), {"device": device})
    return {
        "numpy": _Oracle,
        "alight": ours,
        "cupy": CuPy,
        "cupy.fuse": CuPyFuse,
        "jax": _ThereJax,
        "torch": _ThereTorch,
    }
