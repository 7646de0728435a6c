"""What notebooks show of alight's objects: plain HTML, without scripts, with all text escaped."""

from __future__ import annotations

from html.parser import HTMLParser

import numpy
import pytest

import alight
from alight._core import floor
from alight._src.explain.row_table import RowTable


class Seen(HTMLParser):
    """The tags and texts of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert not attrs
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@pytest.mark.parametrize("dtype", ["float64", "bool", "complex64", "int8"])
@pytest.mark.parametrize("shape", [(), (3,), (0, 2), (2, 3), (2000, 3)])
def test_an_array_shows_its_elements_as_numpy_prints_them(
    dtype: str, shape: tuple[int, ...]
) -> None:
    array = alight.ones(shape, dtype) + alight.zeros(shape, dtype)
    seen = Seen(array._repr_html_())
    assert seen.tags == ["pre", "small"]
    assert "".join(seen.texts[:-1]) == str(numpy.asarray(array))
    assert dtype in seen.texts[-1] and " × ".join(map(str, shape)) in seen.texts[-1]
    assert len(array._repr_html_()) < 1000


def test_an_array_that_passes_for_numpys_has_no_html(monkeypatch: pytest.MonkeyPatch) -> None:
    array = alight.ones(3)
    monkeypatch.setattr(floor, "scalars", True)
    assert not hasattr(array, "_repr_html_") and not hasattr(numpy.ones(3), "_repr_html_")


def test_devices_plans_and_predictions_show_as_tables() -> None:
    def wave(x: numpy.ndarray) -> numpy.ndarray:
        return numpy.sqrt(x * x + 1.0).sum()

    x = numpy.ones(100_000)
    devices, plan = alight.devices(), alight.fusion_report(wave, x)
    for rows in (devices, plan, alight.estimate(wave, x), alight.device_report(wave, x)):
        seen = Seen(rows._repr_html_())
        assert set(seen.tags) == {"table", "tr", "th", "td"}
        assert seen.tags.count("tr") == 1 + len(rows)
        for text in filter(str.strip, seen.texts):
            assert text in str(rows)
    assert "cpu" in Seen(devices._repr_html_()).texts and isinstance(devices[0], dict)


def test_text_in_a_table_is_escaped() -> None:
    rows = RowTable([{"why": "<script>alert(1)</script> & more"}], ["why"])
    assert "<script>" not in rows._repr_html_() and "&amp; more" in rows._repr_html_()
    assert "<lambda>" not in alight.report()._repr_html_()
