"""The exceptions of alight; each is also the builtin that NumPy code already catches.

What NumPy raises for bad arguments stays NumPy's own exception. These are for what NumPy cannot
meet: settings, devices, kernels and files. A message says what went wrong, with which values, and
ends in "Fix: …".
"""

from __future__ import annotations

__all__ = [
    "AlightError",
    "ConfigError",
    "DTypeUnsupported",
    "DeviceUnavailable",
    "KernelError",
    "OutOfDeviceMemory",
    "PlanError",
    "StoreError",
    "UnsupportedOnDevice",
]


class AlightError(Exception):
    """Base of everything that alight itself raises."""


class ConfigError(AlightError, ValueError):
    """A setting has a bad value; the message names where it came from."""


class DeviceUnavailable(AlightError, RuntimeError):
    """A device that was asked for is not present, not allowed or lost."""


class UnsupportedOnDevice(AlightError, RuntimeError):
    """An operation is a gap on the forced device, and the policy says ``on_gap="raise"``.

    Attributes
    ----------
    nodes : tuple of int
        The numbers of its values in the graph that was planned.
    """

    nodes: tuple[int, ...] = ()


class DTypeUnsupported(UnsupportedOnDevice, TypeError):
    """The gap is that the forced device has no such dtype."""


class KernelError(AlightError, RuntimeError):
    """A kernel failed to compile, load or launch, or its result did not match NumPy's."""


class StoreError(AlightError, OSError):
    """A stored document cannot be named, locked or removed."""


class OutOfDeviceMemory(AlightError, MemoryError):
    """A device has no room for a buffer, even after eviction."""


class PlanError(AlightError, RuntimeError):
    """A plan would read what is not there, or write what others see.

    alight itself is at fault. It is only raised where the setting ``check`` is on.

    Parameters
    ----------
    message : str
        What would go wrong.
    step : str, optional
        The step of the plan.
    buffer : str, optional
        The name of the memory.
    value : object, optional
        What is read or made there.
    """

    def __init__(
        self, message: str, step: str = "", buffer: str | None = None, value: object = None
    ) -> None:
        super().__init__(message)
        self.step = step
        self.buffer = buffer
        self.value = value
