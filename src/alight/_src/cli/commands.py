"""The command `alight`."""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from alight._src.adapt import lazy_devices
from alight._src.base.at_exit import end_as_interrupted
from alight._src.base.formatting import readable_bytes, readable_seconds
from alight._src.config.loading import calibrate_here, config, current_policy
from alight._src.explain import text_tables
from alight._src.explain.report import Report, version, write
from alight._src.explain.tables_data import profile_rows, standing_row
from alight._src.launch.program import Action, failing_in_words, to_explain, to_run
from alight._src.store import Entry, default_store
from alight.backends import registry

__all__ = ["commands", "main"]


def _amount(text: str) -> float:
    """Return the finite number above 0 of a text; "nan" and "inf" pass through click's ranges."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0.0 < number < math.inf:
        raise click.BadParameter(f"{text!r} is not a number above 0. Fix: write for example 5.")
    return number


# What follows the script is the script's own, options too.
_SCRIPT = {"allow_interspersed_args": False}
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def _program(command: Callable[..., Action]) -> Callable[..., Action]:
    """Give a command what names a program: a script or -m or -c, and the program's arguments."""
    # Flags, not options with a value: what follows that value is the program's, options too.
    for add in (
        click.argument("arguments", nargs=-1, type=click.UNPROCESSED),
        click.argument("script", metavar="SCRIPT|MODULE|CODE"),
        click.option("-c", "code", is_flag=True, help="Run a text, as `python -c`."),
        click.option("-m", "module", is_flag=True, help="Run a module, as `python -m`."),
    ):
        command = add(command)
    return command


def _show_version(context: click.Context, _: click.Parameter, asked: bool) -> None:
    if asked:
        click.echo(f"alight {version()}")
        context.exit()


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Print the version.",
)
def commands() -> None:
    """Run NumPy programs where they end soonest, and say what ran where."""


@commands.command(context_settings=_SCRIPT)
@click.option(
    "--report",
    metavar="FILE.json|-",
    help="Write the report at exit: to a file (.html and .txt too), or as text to standard error.",
)
@_program
def run(report: str | None, **program: Any) -> Action:
    """Run an unmodified NumPy program as `python` does."""
    _check_kind(**program)
    return to_run(report, **program)


@commands.command(context_settings=_SCRIPT)
@_program
def explain(**program: Any) -> Action:
    """Run a program, then print each decision and its losers."""
    _check_kind(**program)
    return to_explain(**program)


def _check_kind(module: bool, code: bool, **_: Any) -> None:
    if module and code:
        raise click.UsageError("-m and -c exclude each other. Fix: give one of them.")


@commands.command()
@_json
def devices(as_json: bool) -> None:
    """List the devices, their profiles, and which take part."""
    from alight._src.cli.doctor import stored_profiles

    registry.probe_all()
    found = registry.known_devices()
    lazy_devices.notice(found)
    profiles = {row["device"]: row for row in profile_rows(stored_profiles(found))}
    rows = [{**standing_row(d), "profile": profiles.get(d.id)} for d in found]
    absent = registry.absences()
    gone = lazy_devices.gone()
    if as_json:
        _print_json({"devices": rows, "absent": absent, "gone": gone})
        return
    header = ["device", "name", "memory", "implementations", "profile", "beats NumPy from"]
    cells = [
        [
            *(row["id"], row["name"], readable_bytes(row["memory_bytes"])),
            *(", ".join(row["implementations"]), _origin(row["profile"])),
            _crossovers(row["profile"]),
        ]
        for row in rows
    ]
    click.echo("\n".join(text_tables.aligned(header, cells)))
    for row in rows:
        for line in _by_class(row["profile"]):
            click.echo(f"  {row['id']} {line}")
        for line in text_tables.rates(row["profile"]):
            click.echo(f"  {row['id']} {line}")
        for line in text_tables.remarks(row["profile"]):
            click.echo(f"  {row['id']}'s profile: {line}")
    for row in rows:
        click.echo(
            f"  {row['id']} takes {'part' if row['takes_part'] else 'no part'}: {row['why']}"
        )
    for name, reason in sorted([*absent.items(), *gone.items()]):
        click.echo(f"  no {name}: {reason}")


def _origin(profile: dict[str, Any] | None) -> str:
    if profile is None:
        return f"none: run {calibrate_here()}"
    return f"{profile['origin']}, {profile['path'] or 'not stored'}"


def _crossovers(profile: dict[str, Any] | None) -> str:
    found = {} if profile is None else profile["crossovers"]
    words = [f"{name} {_crossover(elements)}" for name, elements in found.items()]
    return "; ".join(words) or "unknown"


_CLASS_WORDS = {
    **{
        "reduce_inner": "reductions of rows",
        "reduce_outer": "reductions of columns",
        "scan": "scans",
    },
    **{"sort": "sorts", "gather": "gathers", "fft": "Fourier transforms", "move": "copies"},
}


def _by_class(profile: dict[str, Any] | None) -> Iterator[str]:
    """Yield from how many elements each implementation beats NumPy at other work than additions."""
    for name, kinds in ({} if profile is None else profile["crossovers_by_class"]).items():
        words = [
            f"{_CLASS_WORDS[k]} {_crossover(n)}" for k, n in kinds.items() if k in _CLASS_WORDS
        ]
        if words:
            yield f"{name} beats NumPy from: {'; '.join(words)}"


def _crossover(elements: int | None) -> str:
    if elements is None:
        return "never"
    return "any size" if elements <= 1 else f"{elements:,} elements"


@commands.command()
@click.argument("names", nargs=-1, metavar="[DEVICE]...")
@click.option(
    "--seconds",
    metavar="SECONDS",
    type=_amount,
    default=text_tables.CALIBRATION_SECONDS,
    show_default=True,
    help="Time to spend on each device.",
)
@click.option("--dry-run", is_flag=True, help="Print what would change, but store nothing.")
@click.option(
    "--fresh",
    is_flag=True,
    help="Begin anew: pass over what earlier calibrations measured, and how quick they found the "
    "processor.",
)
@click.option(
    "--from",
    "source",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Take a profile from a file instead of measuring; or have predictions learn from a "
    "benchmark's result.",
)
@_json
def calibrate(
    names: tuple[str, ...],
    seconds: float,
    dry_run: bool,
    fresh: bool,
    source: Path | None,
    as_json: bool,
) -> int:
    """Measure the devices, so that placement can choose.

    Each calibration goes on from where the last one stopped: what is not known yet comes first.

    By default all that this machine has, or those that the settings name. What was measured takes
    part from then on without being named. Where other work disturbed the measuring, predictions
    are taken for less sure. Exits with 1 where no device could be measured.
    """
    from alight._src.explain import calibration_text  # no other command measures
    from alight._src.measure import imported

    if fresh and source is not None:
        raise click.UsageError("--fresh measures and --from does not. Fix: give one of the two.")
    if source is not None and imported.is_result(source):
        from alight._src.bench.imported_results import as_text, import_results

        taken = import_results(source, store=not dry_run)
        if as_json:
            _print_json({"results": taken})
        else:
            click.echo(as_text(taken))
        return int(not taken)
    rows = []
    failed = {}
    for device in calibration_text.devices_to_calibrate(names, source is not None):
        try:
            if source is not None:
                found = calibration_text.take_over(source, device, not dry_run)
            else:
                with _bar(sys.stderr.isatty() and not as_json) as progress:
                    found = calibration_text.calibrate(
                        device, seconds, not dry_run, progress, fresh
                    )
        except KeyboardInterrupt as interrupt:
            for note in getattr(interrupt, "__notes__", ()):
                click.echo(note, err=True)
            raise
        except Exception as error:  # a driver that nobody named must not cost the others
            unnamed = device.id not in names and registry.leaves_open(current_policy())
            if source is not None or not unnamed:
                raise
            failed[device.id] = f"{type(error).__name__}: {error}"
            if not as_json:
                click.echo(f"{device.id}: not measured: {failed[device.id]}")
            continue
        rows.append(found.row)
        if not as_json:
            click.echo(str(found))
            if dry_run:
                click.echo("\n".join(_changed(found.row["changes"])))
    if as_json:
        _print_json({"profiles": rows, "failed": failed})
    return int(not rows)


def _changed(changes: list[dict[str, Any]]) -> list[str]:
    """Return a table of numbers before and after, their difference and their ratio."""
    cells = []
    for row in changes:
        before, after = row["before"], row["after"]
        if before is None:
            cells.append([row["name"], "none", readable_seconds(after), "", ""])
        else:
            cell = [row["name"], readable_seconds(before), readable_seconds(after)]
            sign = "-" if after < before else "+"
            apart = f"{sign}{readable_seconds(abs(after - before))}"
            cells.append([*cell, apart, f"{after / before:.3f}"])
    return list(text_tables.aligned(["number", "before", "after", "absolute", "ratio"], cells))


@contextlib.contextmanager
def _bar(shown: bool) -> Iterator[Callable[[float, str], None] | None]:
    """Yield what shows how far measuring is: a bar of rich where that is installed."""
    if not shown:
        yield None
        return
    try:
        from rich.progress import Progress
    except ImportError:
        yield _progress
        return
    with Progress(transient=True) as bar:
        task = bar.add_task("", total=1.0)
        yield lambda share, what: bar.update(task, completed=share, description=what)


def _progress(share: float, what: str) -> None:
    # One line that is written over: carriage return, and "erase to the end of the line".
    print(
        f"\r{share:4.0%} {what}\x1b[K", end="\r" if share == 1 else "", file=sys.stderr, flush=True
    )


@commands.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@_json
@click.option("--html", type=click.Path(dir_okay=False, writable=True), help="Write a page.")
@click.option("--all", "each", is_flag=True, help="Every line of each table: the decision log.")
def report(file: str, as_json: bool, html: str | None, each: bool) -> None:
    """Print a saved report: who called what, predictions and seconds."""
    loaded = Report.load(file)
    if html is not None:
        write(html, loaded.to_html())
    elif as_json:
        click.echo(loaded.to_json())
    else:
        limit = math.inf if each else text_tables.SHOWN
        click.echo(text_tables.text(loaded.to_dict(), limit))


@commands.group(invoke_without_command=True)
@click.pass_context
def cache(context: click.Context) -> None:
    """List or clear what is stored: profiles and kernels."""
    if context.invoked_subcommand is None:
        context.invoke(list_cache)


@cache.command("list")
@click.option("--all", "each", is_flag=True, help="A line for each file.")
@_json
def list_cache(each: bool = False, as_json: bool = False) -> None:
    """List what is stored, by kind."""
    entries = default_store().entries()
    if as_json:
        _print_json([entry._asdict() for entry in entries])
    elif each:
        rows = [[e.kind, e.key, e.form, f"{e.bytes:,}"] for e in entries]
        click.echo("\n".join(text_tables.aligned(["kind", "key", "form", "bytes"], rows)))
    else:
        click.echo("\n".join(_stored(entries)))


def _stored(entries: list[Entry]) -> Iterator[str]:
    """Yield what is stored, in all and by kind."""
    total = readable_bytes(sum(entry.bytes for entry in entries))
    yield f"{_files(len(entries))}, {total}, in {config().cache_root()}"
    kinds: dict[str, list[Entry]] = {}
    for entry in entries:
        kinds.setdefault(entry.kind, []).append(entry)
    cells = [
        [kind, f"{len(found):,}", readable_bytes(sum(entry.bytes for entry in found))]
        for kind, found in kinds.items()
    ]
    if cells:
        yield from text_tables.aligned(["kind", "files", "size"], cells)
    bad = sum(entry.form == "quarantined" for entry in entries)
    if bad:
        yield f"{_files(bad)} of them could not be read and {'is' if bad == 1 else 'are'} not used"
    if cells:
        yield "`alight cache list --all` names each; `alight cache clear` removes them"


def _files(count: int) -> str:
    return "1 file" if count == 1 else f"{count:,} files"


@cache.command("clear")
def clear_cache() -> None:
    """Remove everything that is stored."""
    count = default_store().clear()
    click.echo(f"{_files(count)} removed")


@cache.command("path")
def cache_path() -> None:
    """Print the folder."""
    click.echo(str(config().cache_root()))


@cache.command("size")
def cache_size() -> None:
    """Print the bytes in use."""
    click.echo(f"{default_store().size()} bytes")


@commands.command("doctor")
@_json
def examine(as_json: bool) -> None:
    """Say what alight found here, and what is missing and why."""
    # Not at the top: finding entry points loads 25 ms of modules, and a script must not wait.
    from alight._src.cli import doctor

    found = doctor.findings()
    if as_json:
        _print_json(found)
    else:
        click.echo(doctor.text(found))


@commands.command()
@click.option("--only", metavar="NAMES", help="Programs, families or patterns, with commas.")
@click.option("--sizes", metavar="SIZES", help="Elements, as in 2^17,2^20.")
@click.option("--dtypes", metavar="NAMES", help="float32, float64 or both.")
@click.option("--peers", metavar="NAMES", help="Whom to time, as in numpy,alight,jax.")
@click.option(
    "--budget",
    metavar="MINUTES",
    type=_amount,
    default=20.0,
    show_default=True,
    help="Minutes for the whole run.",
)
@click.option(
    "--extras/--no-extras",
    default=True,
    help="First calls, busy neighbours, bits by threads.",
    show_default=True,
)
@click.option(
    "--device",
    default="cpu",
    show_default=True,
    help="Where the arrays lie before the clock starts, as in cuda:0.",
)
@click.option(
    "--regret",
    is_flag=True,
    help="Time every choice there was, and say what choosing by the model costs.",
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("bench-results/host"),
    show_default=True,
    help="Folder for JSON, table and pictures.",
)
def bench(
    only: str | None,
    sizes: str | None,
    dtypes: str | None,
    peers: str | None,
    budget: float,
    extras: bool,
    device: str,
    regret: bool,
    out: Path,
) -> int:
    """Time NumPy programs through alight and its peers."""
    from alight._src.bench.command import (  # no other command needs the programs
        run_bench,
        run_regret,
    )

    if regret:
        return run_regret(only, sizes, dtypes, budget, out)
    return run_bench(only, sizes, dtypes, peers, budget, extras, out, device)


def _print_json(value: Any) -> None:
    import json  # late: a script must not wait for it

    click.echo(json.dumps(value, indent=2, default=str))  # paths


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; what `run` and `explain` start runs outside of click.

    click would take KeyboardInterrupt and SystemExit for its own, and a script's must reach Python.
    """
    with failing_in_words():
        try:
            action = commands.main(arguments, prog_name="alight", standalone_mode=False)
        except click.ClickException as error:
            error.show()
            raise SystemExit(error.exit_code) from None
        except click.Abort:
            end_as_interrupted()
    if callable(action):
        action()
    elif isinstance(action, int):
        raise SystemExit(action)
