"""Memory of a device, and launches on it: what the native core does without the Python between, and
the twin leaves to others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import index
from typing import Any

__all__ = ["PIECES", "DeviceBuffer", "DeviceCall", "Launches", "Shelf", "Stock"]

# What a shelf keeps: a loop needs one piece, or as many as it has results before it drops one.
PIECES = 8


class Stock:
    """How many bytes the shelves of a device hold, and may hold. ``open``: the device can be
    used; what comes back is not kept otherwise."""

    def __init__(self, most: int) -> None:
        self.held = 0
        self.most = most
        self.open = True


class Shelf:
    """Pieces of one size that buffers have left, for the next ones."""

    def __init__(self, stock: Stock, nbytes: int, device: str) -> None:
        self.stock = stock
        self.nbytes = nbytes
        self.device = device
        self._pieces: list[Any] = []
        self._most = PIECES  # what is put back at a process's end finds no globals any more

    @property
    def count(self) -> int:
        """Return how many there are."""
        return len(self._pieces)

    def take(self, nbytes: int) -> DeviceBuffer | None:
        """Return a buffer of so many bytes, or None where no piece is here."""
        if nbytes > self.nbytes:
            raise ValueError(f"{nbytes} bytes of a shelf with pieces of {self.nbytes}")
        if not self._pieces or not self.stock.open:
            return None
        memory = self._pieces.pop()
        self.stock.held -= self.nbytes
        return DeviceBuffer(memory, nbytes, self.device, self)

    def put(self, memory: Any) -> None:
        """Keep a piece, where it may be kept."""
        stock = self.stock
        if len(self._pieces) < self._most and stock.open and stock.held + self.nbytes <= stock.most:
            self._pieces.append(memory)
            stock.held += self.nbytes

    def clear(self) -> None:
        """Give every piece back to whoever gave it."""
        gone, self._pieces = self._pieces, []
        self.stock.held -= self.nbytes * len(gone)


class DeviceBuffer:
    """Device memory, at ``memory.ptr``. When it is dropped or freed the memory goes back to whoever
    gave it, unless there is a shelf that keeps what is dropped."""

    __slots__ = ("__weakref__", "_shelf", "address", "device", "memory", "nbytes")

    def __init__(self, memory: Any, nbytes: int, device: str, shelf: Shelf | None = None) -> None:
        self.address: int = index(memory.ptr)
        if not 0 <= self.address < 1 << 64:
            raise OverflowError(f"no address: {self.address}")
        self.memory = memory
        self.nbytes = nbytes
        self.device = device
        self._shelf = shelf

    def free(self) -> None:
        """Give the memory back."""
        self.memory = None
        self.address = 0

    def __reduce_ex__(self, protocol: Any) -> Any:
        # a copy would give the memory back once more
        raise TypeError(f"cannot pickle '{type(self).__name__}' object")

    def __del__(self) -> None:
        shelf = getattr(self, "_shelf", None)  # which it lacks where it could not be made
        self._shelf = None
        if shelf is not None and self.address:
            shelf.put(self.memory)


class Launches:
    """Launches of one plan that are ready.

    ``driver`` is the addresses of the driver's functions that launch a kernel and a graph, that
    tell the current context, make one current and take it away again, and the context it must be.
    ``table`` is the address and the places of a table that the parameters of the kernels point
    into: what is given (with ``offsets`` in bytes before it), ``windows`` (place of what each looks
    at, bytes), what is made (from ``shelves``, of ``nbytes``), and ``inner`` buffers. ``kernels``
    are (function, blocks, threads, address of the parameters); ``keep`` lives as long."""

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
    ) -> None:
        # The buffers of what is no result; None: they must be had first.
        self.inner: tuple[DeviceBuffer, ...] | None = None
        self.single = False  # kernels are launched one by one; else only graphs are
        self.busy = False  # a run is going on, which one in its midst leaves to others
        self.runs = 0

    def launch(self, graph: int) -> int:
        """Launch a graph, or with 0 each kernel, for what the table holds; return the driver's
        status, 0 for success."""
        return 1  # it is for others

    def keep(self, addresses: tuple[int, ...], graph: int) -> None:
        """Launch this graph where the table holds these addresses."""

    def drop(self, graph: int) -> None:
        """Launch this graph no more; one that is not kept is no error."""


class DeviceCall:
    """A call on arrays that lie on a device: natively it looks whether the arguments are like those
    of ``pattern`` (a layout for an array, (layout, number) for one with the data of an array before
    it, (scalar,) for a scalar) and lie in ``space``, launches, and gives the results. What takes
    more than that, and the call ``next``, is for ``otherwise``, which the twin leaves all calls to.
    What has no ``Launches`` is a function, from a list of buffers to one; where it raises one of
    ``failing`` the call is for ``otherwise``, too.

    ``constants`` are (data, buffer), behind the arguments; ``order`` says which of these each
    operand is. ``results``: layout, and seconds that bringing it again would take, of all that is
    made. ``form``: (tuple or list, which of them), None for the first one alone, or what else
    ``build(args, values)`` gives a form. ``lock`` is (acquire, release); ``running`` takes a
    ``started`` of ``row`` (graph, told, places; and the error state of the values) with what was
    read and made, ``fresh`` the references and seconds of what was made, up to ``most``."""

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
    ) -> None:
        self.calls = self.next = 0
        self._otherwise = otherwise

    def __call__(self, *args: Any) -> Any:
        """Return the results, or NotImplemented where the arguments do not fit."""
        self.calls += 1
        return self._otherwise(*args)
