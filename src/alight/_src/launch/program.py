"""A program that a command line names: what is looked at before its first line, and what runs it.

Nothing here knows how the command line is read, and none of what reads it is loaded: a script must
not wait for it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from alight._src.base.failures import failures
from alight._src.config.loading import config, current_policy
from alight._src.config.schema import checked
from alight._src.launch.loader import (
    is_archive,
    run_code,
    run_folder,
    run_script,
)
from alight.backends import registry
from alight.errors import AlightError, ConfigError

__all__ = ["Action", "failing_in_words", "read_script", "to_explain", "to_run", "to_start"]

Action = Callable[[], None]


def action(script: str, arguments: Sequence[str], module: bool, code: bool) -> Action:
    """Return what runs the program: a script, a folder or "-" for standard input; the module or the
    text of that name."""
    if module:
        from alight._src.launch.chained import run_module  # a script must not wait for it

        return partial(run_module, script, arguments)
    if code:
        return partial(run_code, script, arguments)
    if script == "-":
        return partial(run_code, sys.stdin.read(), arguments, "-", "<stdin>")
    if os.path.isdir(script) or is_archive(script):
        return partial(run_folder, script, arguments)
    return partial(run_script, script, read_script(script), arguments)


def read_script(path: str) -> bytes:
    """Return the script's source; where it cannot be read, say so and exit as Python does."""
    try:
        with open(path, "rb") as stream:
            return stream.read()
    except failures(OSError) as error:
        where = os.path.join(os.getcwd(), path)
        print(
            f"alight: can't open file {where!r}: [Errno {error.errno}] {error.strerror}. "
            "Fix: name a script file.",
            file=sys.stderr,
        )
        raise SystemExit(2) from None


def check_settings() -> None:
    """Raise for a bad setting, or a device that is not there, before somebody's program runs."""
    try:
        config()
    except ConfigError:
        if named := os.environ.get("ALIGHT_REPORT"):  # it may be what is bad: to be said once
            from alight._src.explain.report_at_exit import not_at_exit

            not_at_exit(named)
        raise
    registry.check(current_policy())


def to_run(
    report: str | None, script: str, arguments: Sequence[str], module: bool, code: bool
) -> Action:
    """Return what runs the program, and writes its report where one is asked for."""
    check_settings()
    asked = config().report  # what the environment or the file names: --report wins
    wanted = checked("report", report, "--report") if report else asked
    if wanted is None:
        return action(script, arguments, module, code)
    from alight._src.adapt.first_plan import plan_at_once  # late: most start without a report

    plan_at_once()  # a report is asked for to see plans, on programs that are short often
    from alight._src.explain.report_at_exit import at_exit, not_at_exit  # 2 ms

    not_at_exit(asked)
    folder = os.path.dirname(os.path.abspath(wanted))
    if wanted != "-" and not os.path.isdir(folder):  # better now than after the program's own work
        raise AlightError(
            f"cannot write the report to {wanted}: {folder} is no folder. Fix: make it."
        )
    run = action(script, arguments, module, code)
    at_exit(wanted)
    return run


def to_explain(script: str, arguments: Sequence[str], module: bool, code: bool) -> Action:
    """Return what runs the program, and prints each decision and its losers at its end."""
    check_settings()
    from alight._src.adapt.first_plan import plan_at_once

    plan_at_once()  # plans are what is to be explained
    run = action(script, arguments, module, code)
    from alight._src.explain.report_at_exit import explain_at_exit

    explain_at_exit()
    return run


def to_start() -> None:
    """Run the script that Python was started with, as `alight run` does."""
    script, *arguments = sys.argv
    with failing_in_words():
        run = to_run(None, script, arguments, False, False)
    run()


@contextmanager
def failing_in_words() -> Iterator[None]:
    """End the process, with the error in one line, where alight or the system says what is
    wrong."""
    try:
        yield
    except failures(AlightError, OSError) as error:
        print(f"alight: {error}", file=sys.stderr)
        raise SystemExit(1) from None
