"""Set up alight in .venv and run it.

python3 start.py             measure this machine, then run the terrain example with its report
python3 start.py test …      run the linter, the type checker and all tests, in as many processes as
                             there are processors, up to four; … goes to pytest (-n 0: in one)
python3 start.py --help      print this

Only the standard library, and only what an old Python can parse: it shall get a message.
"""

import hashlib
import os
import subprocess
import sys
from importlib.util import find_spec

ROOT = os.path.dirname(os.path.abspath(__file__))
VENV = os.path.join(ROOT, ".venv")
OLDEST = (3, 11)
# Measuring ends with 1 where other work disturbed it; it takes five seconds, and that may be over.
ATTEMPTS = 3
EXAMPLE = os.path.join("examples", "terrain.py")
# Processes of tests at most: each takes up to 0.6 GB, and many tests have threads of their own.
WORKERS = 4
# What decides what is installed: when one of these changes, it is installed again.
NATIVE = os.path.join("src", "alight", "_core", "native")
INPUTS = ("pyproject.toml", "setup.py", os.path.join("tools", "building.py"))


def say(text: str) -> None:
    """Print a line at once: the commands that follow write to the same place."""
    print("start.py: " + text, file=sys.stderr, flush=True)


def stop(problem: str, fix: str) -> None:
    """End with a message that says what to do."""
    say(f"{problem} Fix: {fix}")
    sys.exit(1)


def run(what: str, *command: str) -> int:
    """Return the exit status of a command, run in the root; say what it is for and how long it may
    take, since some print nothing for minutes."""
    say(what + ": " + " ".join(command).replace(ROOT + os.sep, ""))
    return subprocess.call(command, cwd=ROOT)


def tool(name: str) -> str:
    """Return the path of a command in the environment."""
    if os.name == "nt":
        return os.path.join(VENV, "Scripts", name + ".exe")
    return os.path.join(VENV, "bin", name)


def inputs_digest() -> str:
    """Return a digest of all that decides what is installed."""
    digest = hashlib.sha256(repr(sys.version_info[:2]).encode())
    sources = sorted(os.listdir(os.path.join(ROOT, NATIVE)))
    for name in INPUTS + tuple(os.path.join(NATIVE, source) for source in sources):
        with open(os.path.join(ROOT, name), "rb") as stream:
            digest.update(stream.read())
    return digest.hexdigest()


def make_environment() -> None:
    """Make .venv, unless it is there."""
    if sys.version_info < OLDEST:
        stop(
            f"this is Python {sys.version.split()[0]}, alight needs {OLDEST[0]}.{OLDEST[1]}.",
            "run start.py with a newer one, for example `python3.12 start.py`.",
        )
    if os.path.exists(tool("python")):
        return
    missing = [name for name in ("venv", "ensurepip") if find_spec(name) is None]
    make = "making the environment .venv (some seconds)", sys.executable, "-m", "venv", VENV
    if missing or run(*make) != 0:
        stop(
            "the environment .venv could not be made" + "".join(f", no {n}" for n in missing) + ".",
            "install this Python's venv package (Debian, Ubuntu: `apt install python3-venv`), "
            "remove .venv if it is there, and try again.",
        )


def install(extras: str, needed: bool = True) -> None:
    """Install the project with these extras into .venv, unless that was done already; without them
    what is not needed is left out."""
    make_environment()
    note, digest = os.path.join(VENV, "installed-" + extras), inputs_digest()
    if os.path.exists(note):
        with open(note) as stream:
            if stream.read() == digest:
                return
    pip = (tool("python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    what = f"installing alight and its {extras} (downloads, and compiles the core: some minutes)"
    if run(what, *pip, "--editable", f".[{extras}]") != 0:
        if not needed:
            say(f"goes on without {extras}: what needs it is skipped and says so.")
            return
        stop(
            "pip could not install alight and what it needs.",
            "see pip's message above. It needs a package index, or wheels named by PIP_FIND_LINKS; "
            "if .venv itself is broken, remove it.",
        )
    with open(note, "w") as stream:
        stream.write(digest)


def example() -> int:
    """Measure this machine, then run the terrain example with its report."""
    install("examples,report")
    for _ in range(ATTEMPTS):
        if run("measuring this machine (about ten seconds)", tool("alight"), "calibrate") == 0:
            break
    else:  # no profile yet, or the one before
        say(
            "the machine is too busy to be measured. Where it never was, the example runs in NumPy "
            "and its report is empty. Fix: start it again when the machine is quiet."
        )
    what = "running an example with its report (some seconds)"
    return run(what, tool("alight"), "run", "--report", "-", EXAMPLE)


def workers() -> int:
    """Return how many processes share the tests."""
    usable = getattr(os, "sched_getaffinity", None)
    return min(len(usable(0)) if usable else os.cpu_count() or 1, WORKERS)


def test(*arguments: str) -> int:
    """Run linter, type checker and tests; the tests last and whatever came before."""
    install("dev,docs,report")
    install("device-test", needed=False)
    checks = (
        ("linter (seconds)", tool("ruff"), "check", "."),
        ("type checker (up to some minutes, the first time)", tool("mypy")),
        (
            *("tests (tens of minutes)", tool("python"), "-m"),
            *("pytest", "-n", str(workers()), *arguments),
        ),
    )
    failed = [check for check in checks if run(*check) != 0]
    for _, *command in failed:
        say(f"failed, see above: {' '.join(command).replace(ROOT + os.sep, '')}")
    return 1 if failed else 0


if __name__ == "__main__":
    if sys.argv[1:] == []:
        sys.exit(example())
    if sys.argv[1] == "test":
        sys.exit(test(*sys.argv[2:]))
    print(__doc__)
    if sys.argv[1] not in ("-h", "--help"):
        say(f"{sys.argv[1]!r} is not known. Fix: write test, or nothing.")
        sys.exit(2)
