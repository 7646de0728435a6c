"""Does a device that is there cost what does not run on it? ``python -m tests.ratchets.presence``.

Every program of the bench runs with the host alone and with a device beside it, in turns; of both
the least counts. None may take 3 % longer for the device's presence: where its profile says that it
wins, it has to, and where it does not, nobody may notice it. ``--device`` names it (``wgpu:0``);
calibrate it and the host before.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Sequence

from alight import policy
from alight._src.bench.programs import PROGRAMS
from alight._src.bench.regret import Case, cases, runner
from alight.backends import registry

from .result import RESULTS, Row, keep, machine

ROUNDS = 15
MOST = 1.03  # times as long
AGAIN = 3  # at most, while it seems longer


def measured(case: Case, device: str) -> Row:
    """Return the least seconds of a program with the host alone and with the device beside it."""
    ways = {"alone": policy(devices=("cpu",)), "beside": policy(devices=("cpu", device))}
    runs = {way: runner(case, settings) for way, settings in ways.items()}
    least = dict.fromkeys(runs, float("inf"))
    for turn in range(ROUNDS + 1):
        for way in (*runs,) if turn % 2 else (*reversed(runs),):
            seconds = runs[way]()
            if turn:  # the first one compiles and fills caches
                least[way] = min(least[way], seconds)
    name, n, dtype = case
    return {"program": name, "n": n, "dtype": dtype, **least}


def lasting(case: Case, device: str) -> Row:
    """Return the same, measured again where the device seems to cost something: other work comes
    and goes, what it costs stays."""
    row = measured(case, device)
    for _ in range(AGAIN):
        if row["beside"] <= MOST * row["alone"]:
            break
        more = measured(case, device)
        row |= {way: min(row[way], more[way]) for way in ("alone", "beside")}
    return row


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print, write the JSON; 1 where a program takes longer."""
    parser = argparse.ArgumentParser(prog="tests.ratchets.presence", description=__doc__)
    parser.add_argument("--device", default="wgpu:0")
    parser.add_argument("--only", help="programs, by their names")
    parser.add_argument("--sizes", default="14,17,20", help="powers of two (14,17,20)")
    parser.add_argument("--write", action="store_true", help="keep the result in bench-results")
    given = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    registry.device(given.device)  # an error that says why, where it is not there
    names = given.only.split(",") if given.only else [*PROGRAMS]
    sizes = [1 << int(power) for power in given.sizes.split(",")]
    rows = [lasting(case, given.device) for case in cases(names, sizes, ["float32"])]
    rows.sort(key=lambda row: row["alone"] / row["beside"])
    for row in rows:
        ratio = row["beside"] / row["alone"]
        print(f"{ratio:6.3f}× {row['alone'] * 1e6:10.1f} µs {row['program']} {row['n']}")
    slower = [row for row in rows if row["beside"] > MOST * row["alone"]]
    print(
        f"{len(slower)} of {len(rows)} take more than {MOST - 1:.0%} longer beside {given.device}"
    )
    if given.write:
        document = {
            "machine": machine(),
            "device": given.device,
            "rounds": ROUNDS,
            "programs": rows,
        }
        keep(RESULTS / f"presence-{given.device.partition(':')[0]}.json", document)
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
