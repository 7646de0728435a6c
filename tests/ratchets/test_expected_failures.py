"""The list of NumPy's tests that are known to fail is strict: it cannot be longer than it must."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest

from ratchets import expected_failures, numpy_tests
from ratchets.expected_failures import applying, expected_in, problems, read
from ratchets.result import Result
from ratchets.suite import Outcome

WHOLE = """
[[expected]]
reason = "asserts a type"
tests = ["test_a.py::test_one", "test_a.py::TestTwo"]

[[expected]]
reason = "bits"
condition = "numpy>=2.1"
modes = ["sim"]
tests = ["test_a.py::test_three[x]"]

[[expected]]
reason = "another version's"
condition = "numpy<2.1"
tests = ["test_a.py::test_four"]
"""


@pytest.fixture
def written(tmp_path: Path) -> Path:
    path = tmp_path / "list.toml"
    path.write_text(WHOLE, encoding="utf-8")
    return path


def test_an_entry_applies_in_its_modes_and_where_its_condition_holds(written: Path) -> None:
    entries = read(written)
    assert list(applying(entries, "auto")) == ["test_a.py::test_one", "test_a.py::TestTwo"]
    assert applying(entries, "sim")["test_a.py::test_three[x]"] == "bits"
    assert "test_a.py::test_four" not in applying(entries, "sim")


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ('tests = ["test_a.py::t"]', "no reason"),
        ('reason = "r"', "names no test"),
        ('reason = "r"\ntests = ["t", "t"]', "one twice"),
        ('reason = "r"\ntests = ["t"]\nmodes = ["fast"]', "fast"),
        ('reason = "r"\ntests = ["t"]\ncondition = "new numpy"', "new numpy"),
        ('reason = "r"\ntests = ["t"]\nstrict = false', "strict"),
    ],
)
def test_an_entry_that_says_too_little_or_too_much_is_an_error(
    tmp_path: Path, entry: str, said: str
) -> None:
    path = tmp_path / "list.toml"
    path.write_text(f"[[expected]]\n{entry}\n", encoding="utf-8")
    with pytest.raises(ValueError, match=rf"entry 1.*{said}.*Fix: "):
        read(path)


def test_an_id_covers_its_parameters_and_a_class_its_tests() -> None:
    tests = ["f.py::C::a[1]", "f.py::C::a[2]", "f.py::C::ab", "f.py::D::a"]
    covered = expected_in(tests, ["f.py::C", "f.py::C::a", "f.py::C::a[2]", "f.py::D::b"])
    assert covered["f.py::C"] == {"f.py::C::a[1]", "f.py::C::a[2]", "f.py::C::ab"}
    assert covered["f.py::C::a"] == {"f.py::C::a[1]", "f.py::C::a[2]"}
    assert covered["f.py::C::a[2]"] == {"f.py::C::a[2]"} and covered["f.py::D::b"] == set()


def test_each_way_in_which_the_list_is_wrong_is_a_problem() -> None:
    covered = {"f.py::a": {"f.py::a[1]", "f.py::a[2]"}, "f.py::gone": set[str]()}
    found = problems(covered, {"f.py::a[2]", "f.py::b"}, ["f.py::c"], whole=True)
    assert [text.partition(":  ")[0].partition(". Fix")[0] for text in found] == [
        f"f.py::c: fails and is not in {expected_failures.PATH.name}",
        "f.py::a[2]: passes",
        "f.py::gone: matches no test that NumPy passes",
    ]
    # A part of the tests says nothing of those that it leaves out.
    assert problems({"f.py::gone": set()}, set(), [], whole=False) == []


def test_the_literal_share_leaves_nothing_out(
    written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = read(written)
    monkeypatch.setattr(expected_failures, "read", lambda: entries)
    outcomes = {
        "test_a.py::test_one": Outcome("failed", "no"),
        "test_a.py::TestTwo::a": Outcome("failed", "no"),
        "test_a.py::b": Outcome("passed"),
        "test_a.py::c": Outcome("passed"),
        "test_a.py::NumPy fails it, too": Outcome("passed"),
    }
    result = Result(numpy_tests.NAME, "auto", "alight", whole=False)
    numpy_tests.compare(result, set(outcomes) - {"test_a.py::NumPy fails it, too"}, outcomes)
    assert result.problems == []
    assert result.counts["share"] == 1.0
    assert result.counts["literal_share"] == 0.5


def test_the_list_names_tests_of_the_files_that_are_run() -> None:
    installed = Path(np.__file__).parent
    known = set()
    for name, file in numpy_tests.FILES.items():
        tree = ast.parse((installed / file).read_text(encoding="utf-8"))
        for node in tree.body:
            known.add(f"{name}.py::{getattr(node, 'name', '')}")
            for inner in getattr(node, "body", ()):
                known.add(f"{name}.py::{getattr(node, 'name', '')}::{getattr(inner, 'name', '')}")
    entries = read()
    assert entries
    for mode in numpy_tests.MODES:
        listed = {test.partition("[")[0] for test in applying(entries, mode)}
        assert listed - known == set()
