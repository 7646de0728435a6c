"""The ways everything is run, and how much of it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import alight
from alight.backends import registry
from alight.errors import DeviceUnavailable
from conformance.compare import Sample
from conformance.modes import EVERYWHERE, MODES, SILENT


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "mode" in metafunc.fixturenames:
        wanted = metafunc.config.getoption("--mode") or EVERYWHERE
        if metafunc.module.__name__.endswith("test_warnings"):
            wanted = [name for name in wanted if name not in SILENT]
        metafunc.parametrize("mode", wanted, indirect=True)


@pytest.fixture
def mode(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run the test under one mode's policy, deaf to floating-point warnings."""
    name: str = request.param
    wanted = str(MODES[name].get("force", "cpu"))
    try:
        registry.device(wanted.removesuffix(":generated"))
    except DeviceUnavailable as error:
        pytest.skip(str(error))
    with alight.policy(**MODES[name]), np.errstate(all="ignore"):
        yield name


@pytest.fixture
def sample(request: pytest.FixtureRequest) -> Sample:
    return Sample(full=request.config.getoption("--full"))
