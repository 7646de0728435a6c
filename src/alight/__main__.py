"""The command `alight`, and `python -m alight`."""

from __future__ import annotations

import os
import sys

from alight._src.launch.program import failing_in_words, to_explain, to_run


def main() -> None:
    """Run what the command line names.

    A program named plainly, as in ``run script.py …``, starts at once: what reads all other command
    lines, and says what is wrong with one, takes 10 ms to load. Where the first word can be no
    command, ``run`` is meant: ``python -m alight script.py``, ``python -m alight -m module``.
    """
    command, *given = sys.argv[1:] or [""]
    if command in ("-m", "-c") or "." in command or os.sep in command:
        command, given = "run", [command, *given]
    module, code = given[:1] == ["-m"], given[:1] == ["-c"]
    script, *arguments = given[module or code :] or [""]
    plainly = script[:1] not in ("", "-") and sys.platform != "win32"  # there click expands names
    if command not in ("run", "explain") or not plainly:
        from alight._src.cli.commands import main as read_by_click

        return read_by_click()
    with failing_in_words():
        if command == "run":
            action = to_run(None, script, arguments, module, code)
        else:
            action = to_explain(script, arguments, module, code)
    return action()


if __name__ == "__main__":
    main()
