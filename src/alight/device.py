"""What a device says of itself: data only, no driver code."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

from alight._src.base.records import dataclass, field
from alight._src.config.schema import HOST_DEVICE

__all__ = ["HOST_DEVICE", "Device", "Gap", "Probe", "Reason", "Support", "Traces", "Unsupported"]


class Reason(enum.StrEnum):
    """Why a candidate was chosen or ruled out.

    Each is explained in ``docs/report.md``.

    Examples
    --------
    >>> Reason("cheapest") is Reason.CHEAPEST
    True
    """

    CHEAPEST = "cheapest"
    ALREADY_RESIDENT = "already_resident"
    BELOW_FLOOR = "below_floor"
    DTYPE_UNSUPPORTED = "dtype_unsupported"
    GAP = "gap"
    OUT_OF_MEMORY = "out_of_memory"
    PINNED = "pinned"
    POLICY = "policy"
    UNCALIBRATED = "uncalibrated"
    DEMOTED = "demoted"
    DISABLED = "disabled"
    CONTENDED = "contended"
    FIRST_TIME = "first_time"
    COMPILING = "compiling"
    SAVES_LITTLE = "saves_little"
    TRIAL = "trial"


@dataclass(frozen=True, slots=True)
class Gap:
    """Something a device cannot do.

    Parameters
    ----------
    what : str
        What: an op, a dtype, a kind of work.
    why : str
        The cause.
    who : str
        Who could close the gap.

    Examples
    --------
    >>> Gap("float64", "the shading language has no 64-bit float", "nobody").what
    'float64'
    """

    what: str
    why: str
    who: str


@dataclass(frozen=True, slots=True)
class Support:
    """What a device can do beyond NumPy on the host.

    Parameters
    ----------
    implementations : tuple of str
        Whose code runs there: ``"numpy"``, ``"generated"``, ``"library"``.
    dtypes : frozenset of str
        Names of the dtypes it computes with.
    gaps : tuple of Gap, optional
        What it cannot do.
    dialect : str, optional
        The language its generated kernels are printed in, if they are: what that cannot say is a
        gap that planning knows of.
    verified : bool, default True
        Whether an elementwise op is used only once it has matched NumPy on the device; not so where
        the host's own code computes it. What a program declared is compared in any case.
    library : frozenset of str or None, optional
        The ops that the implementation of that name has; None: all.
    calls : frozenset of str, optional
        The ops that the backend's ``call`` does at once, where their arguments lie.

    Examples
    --------
    >>> support = Support(("generated",), frozenset(("float32", "int32")))
    >>> "float64" in support.dtypes
    False
    """

    implementations: tuple[str, ...]
    dtypes: frozenset[str]
    gaps: tuple[Gap, ...] = ()
    dialect: str = ""
    verified: bool = True
    library: frozenset[str] | None = None
    calls: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Device:
    """A memory space with executors, as data.

    Parameters
    ----------
    id : str
        Its name: the backend's, a colon, a number.
    vendor, name : str
        Who made it, and its model.
    space : str
        Its memory: two devices on one card share it.
    memory_bytes : int
        The size of that memory, in bytes.
    unified_memory : bool
        Whether it is the host's own memory.
    support : Support
        What it can do.
    limits : mapping of str to int, optional
        ``"operands"``, where it is given, is how many arrays a kernel may have, ``"engines"`` how
        many copies go on beside kernels.
    fingerprint : str, optional
        What a profile of it is valid for.

    Examples
    --------
    >>> support = Support(("generated",), frozenset(("float32",)))
    >>> card = Device("toy:0", "example", "toy", "toy:0", 2**30, False, support)
    >>> Device.from_dict(card.to_dict()) == card
    True
    """

    id: str
    vendor: str
    name: str
    space: str
    memory_bytes: int
    unified_memory: bool
    support: Support
    limits: Mapping[str, int] = field(default_factory=dict)
    fingerprint: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the device as a document.

        Returns
        -------
        dict
            Its fields as JSON has them.
        """
        from dataclasses import asdict  # late: what is told of a device is seldom asked for

        found = asdict(self)
        support = found["support"]
        support["dtypes"] = sorted(support["dtypes"])
        support["calls"] = sorted(support["calls"])
        if support["library"] is not None:
            support["library"] = sorted(support["library"])
        return found

    @staticmethod
    def from_dict(document: Mapping[str, Any]) -> Device:
        """Return the device that a document describes.

        Parameters
        ----------
        document : mapping
            What ``to_dict`` gave.

        Returns
        -------
        Device
            The device.
        """
        support = dict(document["support"])
        support["implementations"] = tuple(support["implementations"])
        support["dtypes"] = frozenset(support["dtypes"])
        support["calls"] = frozenset(support["calls"])
        support["gaps"] = tuple([Gap(**gap) for gap in support["gaps"]])
        if support["library"] is not None:
            support["library"] = frozenset(support["library"])
        return Device(**{**document, "support": Support(**support)})


@dataclass(frozen=True, slots=True)
class Traces:
    """What changes where devices come, go or get another driver.

    All of it can be looked at without asking a driver.

    Parameters
    ----------
    paths : tuple of str, optional
        Files and folders.
    variables : tuple of str, optional
        Environment variables.
    settings : tuple of str, optional
        Settings of alight.
    modules : tuple of str, optional
        Modules that can be imported, by their top-level names.

    Examples
    --------
    >>> Traces(paths=("/dev/nvidia0",), variables=("CUDA_VISIBLE_DEVICES",)).modules
    ()
    """

    paths: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Probe:
    """The devices a backend found, or the reason why there are none.

    Parameters
    ----------
    devices : tuple of Device
        The devices.
    reason : str, optional
        Why there are none.
    traces : Traces, optional
        What would look different without them.

    Examples
    --------
    >>> Probe((), "ImportError: no module named 'driver'").reason
    "ImportError: no module named 'driver'"
    """

    devices: tuple[Device, ...]
    reason: str = ""
    traces: Traces = Traces()


class Unsupported(Exception):
    """Raised by code generation and backends where a device has a gap.

    The message is the reason.
    """
