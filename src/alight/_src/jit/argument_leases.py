"""The ndarrays of one call of a jitted function, as Arrays over the caller's own memory.

While the call lasts nobody else looks at that memory, so what the body assigns is deferred like all
work. When it ends everything is done: what was assigned is in the caller's arrays, and what goes
back to the caller is ndarrays again: an argument as the very object, a view of one as a view of it.
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from types import FunctionType, GeneratorType, MethodType
from typing import Any

from alight._core import ArrayBase, Data, Storage, Value, native, pending_storages
from alight._src.base.classes import is_among
from alight._src.base.originals import np
from alight._src.jit.call_signature import CallSignature, leasable
from alight._src.jit.exchange import attributes, exchange, holds_objects
from alight._src.jit.reachability import (
    NdArray,
    Reachability,
    exported,
    leads_nowhere,
    overlapping,
    spaces,
)
from alight._src.jit.scalar import Scalar
from alight._src.record import storage_io
from alight._src.record.argument_memory import Lease, settle
from alight._src.record.array import Array
from alight._src.record.numpy_fallback import holds_arrays, tuple_like
from alight._src.record.pending import concrete, manners
from alight._src.run import evaluate

__all__ = ["Leases"]

_PLAIN = (tuple, list, dict)


class Leases:
    """What one call was given, in both forms."""

    __slots__ = (
        "_given", "_ours", "_owners", "_taken", "_unseen",
        "arrays", "changed", "leases", "members", "ours_too", "reach", "roots",
    )  # fmt: skip

    def __init__(self) -> None:
        self.leases: list[Lease] = []
        self.roots: list[Value] = []  # what a program of the body would compute, as it asks for it
        self.members: list[NdArray] = []  # the ndarrays in them, in the arguments' order
        self.arrays: dict[int, Array] = {}  # by the id of the caller's ndarray
        self._ours: dict[int, tuple[Array, NdArray]] = {}  # by the id of the Array
        # The caller's containers, by their ids, with what the body got for them.
        self._taken: dict[int, tuple[Any, Any]] = {}
        self._given: dict[int, tuple[Any, Any]] = {}
        self._owners: dict[int, tuple[Data, Storage]] = {}  # whose version some bytes went out as
        self.reach: Reachability | None = (
            None  # what the body comes by beside the arguments' arrays
        )
        self._unseen: list[Any] = []  # objects that results lead to, until they are looked into
        self.ours_too = False  # an argument was an Array: then results are Arrays
        self.changed = False  # the body changed a list or dict that it was given
        self._leave_handled()

    def _leave_handled(self) -> None:
        """Leave the error that the caller is handling, to which others will lead, as it is."""
        if (handled := sys.exception()) is not None:
            self._given[id(handled)] = (handled, handled)

    # -- in ---------------------------------------------------------------------------------------
    def take(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        described: CallSignature | None,
        function: Any = None,
    ) -> Any:
        """Return the arguments as the body gets them. ``described``: what they are, where that is
        known; ``function``: the body itself, where it may come by arrays that are not among
        them."""
        roots: list[Any] = [] if function is None else [function]
        if described is None:
            found: dict[int, NdArray] = {}
            self._find((args, kwargs), found, roots)
            given = list(found.values())
        else:  # plain containers, and in them no objects
            given = described.arrays
        if roots:
            self.reach = reach = Reachability(roots, sum([a.size for a in given]))
            # What is assigned is seen the other way too: NumPy does it at once.
            given = [a for a in given if not reach.touches(a)]
        apart = described is not None and not described.overlaps
        self._lease(given, [[array] for array in given] if apart else _groups(given))
        return (
            tuple([self._convert(item) for item in args]),
            {name: self._convert(item) for name, item in kwargs.items()},
        )

    def _find(self, tree: Any, found: dict[int, NdArray], roots: list[Any]) -> None:
        kind: Any = type(tree)
        if kind is np.ndarray and leasable(tree):
            found[id(tree)] = tree
        elif issubclass(kind, ArrayBase):
            self.ours_too = True
            if exported(tree) is not None:
                roots.append(tree)
        elif kind is tuple or kind is list:
            for item in tree:
                self._find(item, found, roots)
        elif kind is dict:
            for item in tree.values():
                self._find(item, found, roots)
        elif issubclass(kind, tuple) and hasattr(tree, "_fields"):
            for item in tree:
                self._find(item, found, roots)
        elif not leads_nowhere(kind):
            roots.append(tree)  # what an object keeps is read by its methods as it is

    def _lease(self, given: list[NdArray], groups: list[list[NdArray]]) -> None:
        self.members = given
        self.leases = Lease.of(groups)
        for lease in self.leases:
            for member, array in zip(lease.members, lease.arrays, strict=True):
                self.arrays[id(member)] = array
                self._ours[id(array)] = (array, member)

    def _convert(self, item: Any) -> Any:
        array = self.arrays.get(id(item))
        if array is not None and self._ours[id(array)][1] is item:
            return array
        kind = type(item)
        if is_among(kind, _PLAIN) or (issubclass(kind, tuple) and hasattr(item, "_fields")):
            return self._container(item)
        return item

    def _container(self, item: Any) -> Any:
        known = self._taken.get(id(item))
        if known is not None:
            return known[1]
        made: Any
        if type(item) is dict:
            made = {key: self._convert(part) for key, part in item.items()}
        else:
            parts = [self._convert(part) for part in item]
            made = parts if type(item) is list else tuple_like(item, parts)
        same = item if issubclass(type(item), tuple) else None
        if same is not None and all(a is b for a, b in zip(made, item, strict=True)):
            made = item
        self._taken[id(item)] = (item, made)
        return made

    # -- out --------------------------------------------------------------------------------------
    @property
    def can_be_dropped(self) -> bool:
        """Tell whether the body changes nothing but by what is still pending."""
        kept = self.ours_too or self.reach is not None
        return not kept and not any(type(item) in (list, dict) for item, _ in self._taken.values())

    def drop(self) -> None:
        """Forget all that the body has assigned, nothing of which was done: the caller's memory is
        as it was, and nobody has it any more."""
        for lease in self.leases:
            lease.storage.rebind(lease.leased.anew())
            lease.storage.lease = None
        self.leases = []

    def settle(self) -> None:
        """Do all work, and put what was assigned into the caller's memory."""
        leases = [lease for lease in self.leases if lease.storage.lease is not None]
        if self.roots:  # as its program asks for them, whose plan is there
            roots, self.roots = self.roots, []
            evaluate.evaluate(roots)
            roots.clear()
        written = [lease.storage.value for lease in leases if lease.storage.value.op is not None]
        if written:
            evaluate.evaluate(written)
            written.clear()
        if left := self._readers():
            evaluate.evaluate(left)
        settle(leases)
        for lease in self.leases:
            lease.shape_members()
        self._write_back()

    def _readers(self) -> list[Value]:
        """Return the pending work that reads the caller's memory."""
        lent = {id(lease.leased.held()) for lease in self.leases}
        found = []
        for pending in [storage.value for storage in pending_storages()]:
            stack = [pending]
            seen = set()
            while stack:
                value = stack.pop()
                if id(value) in seen:
                    continue
                seen.add(id(value))
                stack += value.operands
                if value.data is not None and id(value.data) in lent:
                    found.append(pending)
                    break
        return found

    def _write_back(self) -> None:
        """Give the caller's lists and dicts what the body made of the ones it got."""
        for item, made in list(self._taken.values()):
            if type(item) is list:
                if len(item) != len(made) or any(
                    self._convert(a) is not b for a, b in zip(item, made, strict=True)
                ):
                    self.changed = True
                    item[:] = [self.give(part) for part in made]
            elif type(item) is dict and (
                list(item) != list(made) or any(self._convert(item[k]) is not made[k] for k in item)
            ):
                self.changed = True
                new = {key: self.give(part) for key, part in made.items()}
                item.clear()
                item.update(new)

    def give(self, tree: Any) -> Any:
        """Return a result as the caller gets it. Call it after ``settle``."""
        kind = type(tree)
        if issubclass(kind, ArrayBase):
            return self._array(tree)
        if self.ours_too and issubclass(kind, np.generic) and native(tree.dtype):
            return Array.of(concrete(np.asarray(tree)))
        if is_among(kind, (float, int, str, bool, type(None))):
            return tree
        if kind is GeneratorType and tree.gi_frame is not None:
            return self._given.setdefault(id(tree), (tree, _Later(self).iterated(tree)))[1]
        for item, made in self._taken.values():
            if tree is made:
                return item
        known = self._given.get(id(tree))
        if known is not None:
            return known[1]
        if not is_among(kind, _PLAIN) and not (
            issubclass(kind, tuple) and hasattr(tree, "_fields")
        ):
            return self._held(tree)
        if is_among(kind, _PLAIN) and not holds_arrays(tree) and not self._holds_taken(tree):
            if not holds_objects(tree):
                return tree
            if kind is not tuple:  # perhaps the program's, and not only a result
                return self._held(tree)
        result: Any
        if kind is dict:
            result = {self._array_only(key): self.give(item) for key, item in tree.items()}
        else:
            parts = [self.give(item) for item in tree]
            result = parts if kind is list else tuple_like(tree, parts)
            if kind is not list and all(a is b for a, b in zip(parts, tree, strict=True)):
                result = tree
            if kept := kind is not list and attributes(result):
                kept.update({name: self.give(item) for name, item in kept.items()})
        self._given[id(tree)] = (tree, result)
        return result

    def _held(self, holder: Any) -> Any:
        """Return what is no plain container, with ndarrays for the Arrays that it keeps."""
        self._given[id(holder)] = (holder, holder)  # objects lead to one another
        if issubclass(type(holder), (frozenset, MethodType)):
            found = exchange(holder, self._inside)
            self._given[id(holder)] = (holder, found)
            return found
        # One after the other: a list of nodes may be longer than the interpreter's stack.
        self._unseen.append(holder)
        if len(self._unseen) == 1:
            for unseen in self._unseen:
                exchange(unseen, self._inside)
            self._unseen.clear()
        return holder

    def _inside(self, item: Any) -> Any:
        """Return what an object keeps as the caller gets it: its lists and dicts stay the same
        objects."""
        known = self._given.get(id(item))
        if known is not None:
            return known[1]
        if (type(item) is list or type(item) is dict) and not any(
            item is m for _, m in self._taken.values()
        ):
            return self._held(item)
        return self.give(item)

    def give_kept(self, error: BaseException | None) -> None:
        """Give ndarrays to what the body came by, for the Arrays that it put there, and to the
        error that it raised and those that led to it. Call it after ``settle``."""
        reach = self.reach
        for item in () if reach is None else tuple(reach.met.values()):
            if type(item) is FunctionType:
                for space, names in spaces(item):
                    for name in names & space.keys():
                        old = space.get(name)
                        # Another thread in the same function may have put something else there.
                        if (new := self._new(old)) is not old and space.get(name) is old:
                            space[name] = new
            exchange(item, self._new)
        if error is not None:
            self.give(error)
            self._given.clear()  # the error is in it, and leads to the frame that holds this

    def _new(self, item: Any) -> Any:
        """Return what an object of the caller's keeps, exchanged if the body put it there."""
        assert self.reach is not None
        kind: Any = type(item)
        if id(item) in self.reach.met or leads_nowhere(kind):
            return item
        return self._inside(item) if self.reach.whole else self._array_only(item)

    def _array_only(self, item: Any) -> Any:
        return self.give(item) if issubclass(type(item), ArrayBase) else item

    def _holds_taken(self, tree: Any) -> bool:
        """Tell whether a container of the caller's, or anything that needs giving back, is in a
        result."""
        items = tree.values() if type(tree) is dict else tree
        return any(issubclass(type(item), (tuple, list, dict)) for item in items)

    def _array(self, array: Any) -> Any:
        own = self._ours.get(id(array))
        if own is not None and own[0] is array:
            return own[1]
        known = self._given.get(id(array))
        if known is not None:
            return known[1]
        for lease in self.leases:
            if array.storage is lease.storage:
                result: Any = evaluate.host_array(storage_io.read(array)).view()
                if array.window is not None and not array.window.writeable:
                    result.flags.writeable = False
                break
        else:
            result = self._fresh(array)
        self._given[id(array)] = (array, result)
        return result

    def _fresh(self, array: Any) -> Any:
        if type(array) is Scalar:
            scalar = array.now()
            return Array.of(concrete(np.asarray(scalar))) if self.ours_too else scalar
        if self.ours_too:
            evaluate.evaluate((array.storage.value,), read=False)
            return array
        value = array.storage.value
        data = value.data
        if (
            data is not None
            and data.array is not None
            and data.layout is value.layout
            and array.window is None
            and not value.offset
        ):
            host = data.array
        else:
            host = storage_io.host(array)
            data = array.storage.value.data
        if data is None:
            return host.copy("K")
        owner = self._owners.setdefault(id(data), (data, array.storage))[1]
        if owner is not array.storage or data.foreign:
            # Another array has this very version too (`b[:] = a` shares it): one of them copies.
            if data.foreign or array.window is not None:
                array.storage.value = evaluate.duplicate(array.storage.value)
                return storage_io.export(array)
            return host.copy("K")
        if array.window is None and host is data.array:
            data.shared = True  # the ndarray goes out as it is
            return host
        return storage_io.export(array)


class _Later(Leases):
    """What a generator goes on to yield when the call has returned, as its caller gets it."""

    __slots__ = ()

    def __init__(self, call: Leases) -> None:
        super().__init__()
        self.leases, self._ours, self.ours_too = call.leases, call._ours, call.ours_too

    def iterated(self, inner: GeneratorType[Any, Any, Any]) -> Any:
        """Return a generator that yields and returns ndarrays where another has Arrays."""
        made: Any = self._passed_on(inner)
        made.__name__, made.__qualname__ = inner.__name__, inner.__qualname__
        return made

    def _passed_on(self, inner: GeneratorType[Any, Any, Any]) -> Generator[Any, Any, Any]:
        step, sent = inner.send, None
        while True:
            self._leave_handled()
            before, manners.scalar = manners.scalar, None if self.ours_too else Scalar.of
            try:
                found = self._forgetting(step(sent))
            except StopIteration as end:
                return self._forgetting(end.value)
            except BaseException as error:
                self._forgetting(error)
                raise
            finally:
                manners.scalar = before
            try:
                step, sent = inner.send, (yield found)
            except GeneratorExit:
                inner.close()
                raise
            except BaseException as error:
                step, sent = inner.throw, error

    def _forgetting(self, item: Any) -> Any:
        # Nothing that was yielded lives on for having been.
        given = self.give(item)
        self._given.clear()
        return given

    def _fresh(self, array: Any) -> Any:
        if type(array) is Scalar or self.ours_too:
            return super()._fresh(array)
        return storage_io.export(array)  # the generator has it, too


def _groups(arrays: list[NdArray]) -> list[list[NdArray]]:
    """Return the arrays, those that overlap together, in their order."""
    groups = {number: [number] for number in range(len(arrays))}
    for first, second in overlapping(arrays):
        if groups[first] is not groups[second]:
            joined = sorted([*groups[first], *groups[second]])
            groups.update(dict.fromkeys(joined, joined))
    return [[arrays[n] for n in group] for number, group in groups.items() if group[0] == number]
