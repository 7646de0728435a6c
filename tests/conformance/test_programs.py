"""Movement, calls with every keyword, indexing, in-place work, scalars, errors: as on ndarrays."""

from __future__ import annotations

import pytest

from conformance.compare import Findings, Sample
from conformance.expressions import MOVEMENT, VALUES
from conformance.mistakes import ERRORS
from conformance.programs import difference, pieces
from conformance.statements import KEYS, STATEMENTS

pytestmark = pytest.mark.filterwarnings("ignore")
BATCH = 40


def parts(items: list[str]) -> pytest.MarkDecorator:
    whole = pieces(items, BATCH)
    return pytest.mark.parametrize("part", whole, ids=[f"from {p[0]}" for p in whole])


def check(mode: str, programs: list[str], sample: Sample, share: float = 1.0) -> None:
    findings = Findings()
    for text in programs:
        if sample.takes(share, mode, text):
            findings.note(difference(text), repr(text))
    findings.check()


@parts(MOVEMENT)
def test_moved_elements_and_what_they_alias_are_numpys(
    mode: str, part: list[str], sample: Sample
) -> None:
    check(mode, [f"r = {text}" for text in part], sample)
    # Whether the result is a view shows when it is written to; so does whether it may be.
    first = "p = r[0] if isinstance(r, (tuple, list)) else r"
    write = f"{first}\nif np.ndim(p): p[...] = 1\nr = p = None"
    check(mode, [f"r = {text}\n{write}" for text in part], sample, 0.5)
    operand = "x = a + 1; y = c * 2; z2 = t + 1\n"
    texts = [text.replace("c.", "y.") for text in part if "a" in text or "c." in text]
    texts = [text.replace("a.", "x.") for text in texts]
    check(mode, [f"{operand}r = {text}\n{write}" for text in texts], sample, 0.5)


@parts(VALUES)
def test_values_of_expressions_are_numpys(mode: str, part: list[str], sample: Sample) -> None:
    check(mode, [f"r = {text}" for text in part], sample)


@parts(STATEMENTS)
def test_statements_in_place_leave_what_numpys_do(
    mode: str, part: list[str], sample: Sample
) -> None:
    check(mode, part, sample)
    before = "a = a + 1; i = i * 2; o = a[1:]; p = a + b; o2 = i.T\n"
    check(mode, [f"{before}{text}\nz = a * 2" for text in part], sample, 0.5)


@parts(KEYS)
def test_keys_read_and_write(mode: str, part: list[str], sample: Sample) -> None:
    names = "qq = np.arange(2); nn = np.array([True, False, True, False])\n"
    for name in ("a", "b", "i.T[:4, :]", "v", "z", "e", "t", "(a + 1)"):
        share = 1.0 if name == "a" else 0.5
        check(mode, [f"{names}r = {name}[{key}]" for key in part], sample, share)
        if "(" in name:
            continue
        writes = [f"{names}{name}[{key}] = 5" for key in part]
        writes += [f"{names}{name}[{key}] = {name}[{key}] * 2" for key in part]
        writes += [f"{names}x = a * 2; a = a + x\n{name}[{key}] += 1" for key in part]
        check(mode, writes, sample, share * 0.6)


@parts(ERRORS)
def test_errors_are_numpys_at_the_line_that_made_them(
    mode: str, part: list[str], sample: Sample
) -> None:
    check(mode, [f"before = 1\n{text}\nafter = 2" for text in part], sample)
    pending = "a = a + 1; i = i * 2; m = m & (b > -100); v = v + 1\n"
    check(mode, [f"{pending}{text}\nafter = 2" for text in part], sample, 0.5)
