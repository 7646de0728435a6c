"""`alight run`: an unmodified script, as `python script.py` runs it, with alight under its NumPy.

Only the program's own files see alight: the script, and what it imports from its own folder.
Their ``import numpy`` statements are pointed at the run namespace when they are compiled;
everything else, ``sys.modules`` and ``__import__`` included, is left as it is.
"""

from __future__ import annotations
import __future__

import ast
import builtins
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.machinery import (
    BYTECODE_SUFFIXES,
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    BuiltinImporter,
    ExtensionFileLoader,
    FileFinder,
    SourceFileLoader,
    SourcelessFileLoader,
)
from types import CodeType, FrameType, ModuleType
from typing import Any
from zipimport import ZipImportError, zipimporter

import numpy as np

import alight.errors
from alight._core import floor, hooks
from alight._src.api.stand_ins import numpy_namespace, random_namespace
from alight._src.base.failures import failures, ignoring_failures
from alight._src.config.loading import config
from alight._src.jit.gates import Origin, gated, with_gates
from alight._src.launch.hot_functions import takes_functions
from alight._src.launch.numpy_imports import rewrite
from alight._src.record.reported_class import asks_what_it_means

__all__ = [
    "folder_of",
    "is_archive",
    "is_installed",
    "main_module",
    "marked",
    "program_loader",
    "program_tree",
    "run_code",
    "run_folder",
    "run_found",
    "run_rest",
    "run_script",
    "script_code",
    "serve",
    "serving",
]


# ------------------------------------------------------------------------------ the user's files


def _compile(source: bytes, path: str) -> CodeType:
    """Return the code of one of the program's files. Raises what Python raises for it."""
    if b"numpy" not in source and not _has_border:
        return compile(source, path, "exec", dont_inherit=True)
    # Not ast.parse: its frame would stand in the traceback of a syntax error.
    tree: Any = compile(source, path, "exec", ast.PyCF_ONLY_AST, dont_inherit=True)
    tree = program_tree(tree, path, b"numpy" in source, b"numpy.random" in source)
    places = gated(tree) if takes_functions() else []
    code = marked(compile(tree, path, "exec", dont_inherit=True))
    if not places:
        return code
    border = _has_border

    def made() -> ast.Module:  # without gates
        again: Any = compile(source, path, "exec", ast.PyCF_ONLY_AST, dont_inherit=True)
        return rewrite(_by_border(again) if border else again)

    def compiled(again: ast.Module) -> CodeType:
        return marked(compile(again, path, "exec", dont_inherit=True))

    return with_gates(code, places, Origin(made, compiled))


def program_tree(
    tree: ast.Module, path: str, numpy: bool = True, drawing: bool = True
) -> ast.Module:
    """Return the tree of one of the program's files, which may name ``numpy``, and
    ``numpy.random``, as it is compiled."""
    tree = _with_border(tree, path)
    if numpy:
        tree = rewrite(tree)
        numpy_namespace()
    if drawing:
        # Rewritten imports of it look in sys.modules; others need not wait for NumPy's to load.
        random_namespace()
    return tree


def marked(code: CodeType) -> CodeType:
    """Return code that another process finds the border by, where the program has one."""
    if not _has_border:
        return code
    from alight._src.jit.border_rewrite import holding_border

    return holding_border(code)


# Whether the program imports packages: then what leaves its code goes by the border.
_has_border = False


def _with_border(tree: ast.Module, path: str) -> ast.Module:
    """Return a file's tree going by the border, where the program imports packages."""
    global _has_border
    if not _has_border and not any(map(_is_package, _imports(tree, path))):
        return tree
    if not _has_border:
        from alight._src.jit import border_sides

        border_sides.program_folders = _program
        _has_border = True
    return _by_border(tree)


def _by_border(tree: ast.Module) -> ast.Module:
    from alight._src.jit.border_rewrite import reroute  # programs of NumPy alone do without
    from alight._src.jit.code_origin import READERS

    return reroute(tree, READERS | {"alight"}, own=True)


def _imports(tree: ast.Module, path: str) -> Iterator[str]:
    """Yield the modules that a file of the program imports, and those that the program's files that
    it imports do, but for these files themselves."""
    seen: set[str] = set()
    open_files: list[tuple[Any, str]] = [(tree, path)]
    while open_files:
        tree, path = open_files.pop()
        for name, folders in _named_imports(tree, os.path.dirname(path)):
            files = [file for folder in folders for file in _files_of(name, folder)]
            if not files and folders is _program:
                yield name
            for file in files:
                if file in seen:
                    continue
                seen.add(file)
                # Where it cannot be read, its own import says so.
                with (
                    ignoring_failures(OSError, SyntaxError, ValueError),
                    open(file, "rb") as stream,
                ):
                    open_files.append((ast.parse(stream.read()), file))


def _named_imports(tree: ast.Module, folder: str) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield the names of what a file imports, each with the folders where it would be the
    program's."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, _program) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            folders: Sequence[str] = _program
            if node.level:
                folders = [os.path.join(folder, *[os.pardir] * (node.level - 1))]
            if node.module:
                yield node.module, folders
            if node.level:  # what is named may be a file, or in the package's own
                yield from ((alias.name, folders) for alias in node.names if not node.module)


def _files_of(name: str, folder: str) -> Iterator[str]:
    """Yield the files in a folder that run where a module is imported; the folder itself, where
    its package need not have any."""
    parts = name.split(".")
    for count in range(1, len(parts) + 1):
        whole = os.path.join(folder, *parts[:count])
        for path in (whole + ".py", os.path.join(whole, "__init__.py")):
            if os.path.isfile(path):
                yield path
                break
        else:
            if os.path.isdir(whole):
                yield whole


def _is_package(name: str) -> bool:
    """Tell whether a module is neither NumPy's, nor alight's, nor the standard library's."""
    top = name.partition(".")[0]
    if name.startswith(("numpy.testing", "numpy.ctypeslib", "importlib", "ctypes")):
        return True
    return top not in ("numpy", "alight") and top not in sys.stdlib_module_names


# ------------------------------------------------------------------- the program's other modules


class _ProgramLoader(SourceFileLoader):
    """Gives a module the code that was made when it was found."""

    code: CodeType

    def get_code(self, fullname: str) -> CodeType:
        """Return the module's code."""
        return self.code


def program_loader(name: str, path: str) -> SourceFileLoader:
    """Return the loader of one source file; a plain one where there is nothing to rewrite.

    The work is done here and not in the loader, whose frames would stand in the tracebacks.
    """
    plain = SourceFileLoader(name, path)
    try:
        source = plain.get_data(path)
        if b"numpy" not in source and not _has_border:
            return plain
        loader = _ProgramLoader(name, path)
        loader.code = _compile(source, path)
    except failures():  # the plain loader fails the same way, with the message Python gives
        return plain
    return loader


class _ProgramArchive(zipimporter):
    """Finds the modules of a program that is a zip file."""

    def get_code(self, fullname: str) -> CodeType:
        """Return a module's code."""
        code: CodeType = super().get_code(fullname)
        source = self.get_source(fullname)
        if source is None or ("numpy" not in source and not _has_border):
            return code
        return _compile(source.encode(), code.co_filename)


def is_archive(path: str) -> bool:
    """Tell whether a file is a zip file, which Python runs by its ``__main__``."""
    try:
        zipimporter(path)
    except ZipImportError:
        return False
    return True


def _serve_folder(folder: str) -> None:
    """Find source files under the folder, or in the zip file, with our loader, unless they are
    installed packages."""
    root, installed = os.path.join(os.path.realpath(folder), ""), _installed()
    _program.extend(_folders([folder]))

    def finder(path: str) -> FileFinder | zipimporter:
        real = os.path.join(os.path.realpath(path or os.curdir), "")
        if not real.startswith(root) or _within(real, installed):
            raise ImportError("not a folder of the program")
        if not os.path.isdir(real):
            return _ProgramArchive(path)
        return FileFinder(
            path or os.curdir,
            (ExtensionFileLoader, EXTENSION_SUFFIXES),
            (program_loader, SOURCE_SUFFIXES),  # type: ignore[arg-type]  # called, like the classes
            (SourcelessFileLoader, BYTECODE_SUFFIXES),
        )

    sys.path_hooks.insert(0, finder)
    known = [path for path in sys.path_importer_cache if not _within(path, installed)]
    for path in [path for path in known if os.path.realpath(path).startswith(root[:-1])]:
        del sys.path_importer_cache[path]


# The folders that the program's own files lie in.
_program: list[str] = []


def _folders(paths: Iterable[str]) -> tuple[str, ...]:
    """Return the folders as prefixes of what is in them, by every name they go by."""
    both = {form(path) for path in paths for form in (os.path.abspath, os.path.realpath)}
    return tuple(os.path.join(path, "") for path in both)


_PACKAGE_PARTS = tuple(os.sep + name + os.sep for name in ("site-packages", "dist-packages"))


def _packages() -> tuple[str, ...]:
    return _folders(os.path.dirname(str(module.__file__)) for module in (np, alight.errors))


def _installed() -> tuple[str, ...]:
    return (*_packages(), *_folders([os.path.dirname(os.__file__)]))


def is_installed(path: str) -> bool:
    """Tell whether a file is NumPy's, alight's, a package's or the standard library's."""
    return _within(os.path.realpath(path), _installed())


def _within(path: str, folders: tuple[str, ...]) -> bool:
    """Tell whether a path is in one of the folders, or where packages are installed."""
    return path.startswith(folders) or any(part in path for part in _PACKAGE_PARTS)


def _appearance(packages: tuple[str, ...]) -> Callable[[type, CodeType], type]:
    """Return what class an array shows to the code that asks for it.

    It is ndarray for the program, and for the standard library, which only passes questions on
    (unittest, functools); installed packages may reach for an ndarray's memory and see the truth.
    """
    known: dict[str, bool] = {}

    def appears(own: type, code: CodeType) -> type:
        path = code.co_filename
        honest = known.get(path)
        if honest is None:
            honest = known[path] = _within(path, packages)
        return own if honest and not asks_what_it_means(code) else np.ndarray

    return appears


# ----------------------------------------------------------------------------------- the process


def run_script(path: str, source: bytes, arguments: Sequence[str] = ()) -> None:
    """Run the script as ``__main__``; exceptions, SystemExit among them, pass through.

    An error nobody caught is printed by Python as for a plain run: without the frames of alight,
    unless the setting ``log_level`` is on.
    """
    # Python neither resolves nor normalises __file__, but follows links for the import folder.
    file = os.path.join(os.getcwd(), path)
    names = main_module(os.path.dirname(os.path.realpath(path)), [path, *arguments])
    names.update(__file__=file, __cached__=None, __loader__=SourceFileLoader("__main__", file))
    try:
        exec(_compile(source, file), names)
    except SystemExit:
        raise
    except BaseException as error:
        _print_like_python(error)
        raise


def run_code(
    text: str, arguments: Sequence[str] = (), name: str = "-c", file: str = "<string>"
) -> None:
    """Run a text as `python -c` does, or as `python -` runs what is piped to it, by its ``name``
    and ``file`` there; exceptions as for ``run_script``."""
    names = main_module("", [name, *arguments])
    names["__loader__"] = BuiltinImporter
    try:
        exec(_compile(text.encode(), file), names)
    except SystemExit:
        raise
    except BaseException as error:
        _print_like_python(error)
        raise


def run_rest(tree: ast.Module, path: str, begun: FrameType) -> None:
    """Run the rest of a script that another frame has begun, with its names, and end the program as
    that ends; exceptions as for ``run_script``."""
    flags = begun.f_code.co_flags & __future__.annotations.compiler_flag
    code = compile(program_tree(tree, path), path, "exec", flags, dont_inherit=True)
    try:
        exec(marked(code), begun.f_globals)
    except SystemExit:
        raise
    except BaseException as error:
        _print_like_python(error)
        raise
    raise SystemExit


def script_code(source: bytes, path: str) -> CodeType:
    """Return the code of a script that another's module runs by a name of its own."""
    if not os.path.realpath(path).startswith(tuple(_program)):
        _serve_folder(os.path.dirname(path))
    _program.append(path)  # its code may say a relative one
    return _compile(source, path)


def run_folder(path: str, arguments: Sequence[str] = ()) -> None:
    """Run the ``__main__`` of a folder or a zip file as `python FOLDER` does; exceptions as for
    ``run_script``."""
    folder = os.path.join(os.getcwd(), path)  # as Python: neither resolved nor normalised
    main_module(folder, [path, *arguments])
    # Python imports from it first, with -P, too.
    if sys.path[0] != folder:
        sys.path.insert(0, folder)
    run_found("__main__", alter_argv=False)


def run_found(name: str, alter_argv: bool) -> None:
    """Run a module that is where Python looks; exceptions as for ``run_script``."""
    import runpy  # a script must not wait for it

    try:
        # What Python itself calls, so that messages and tracebacks are the same, too.
        vars(runpy)["_run_module_as_main"](name, alter_argv)
    except SystemExit:
        raise
    except BaseException as error:
        _print_like_python(error)
        raise


def main_module(folder: str, argv: list[str], package: str | None = None) -> dict[str, Any]:
    """Make this process the program's, and return the names of a new ``__main__``.

    ``folder`` is where it imports from first ("" is the current one); the files there are its own,
    and those beside a package that is not installed.
    """
    sys.argv[:] = argv
    if not sys.flags.safe_path:
        sys.path[0] = folder
    serve(folder, package)
    module = ModuleType("__main__")
    vars(module).update(__builtins__=builtins, __annotations__={})
    sys.modules["__main__"] = module
    return vars(module)


def serving() -> bool:
    """Tell whether files of this process see alight already."""
    return bool(_program)


# New arrays of fewer elements do not ask for the floor: a program of nothing else waits for no look
# into the store, nor for what records. Half of the least floor that any machine showed.
_LEAST_FLOOR = 75_000


def serve(folder: str, package: str | None = None) -> None:
    """Have this process be a program's whose files lie in a folder, and beside a package that is
    not installed."""
    _serve_folder(folder)
    if package is not None and (beside := folder_of(package)) is not None:
        _serve_folder(beside)
    floor.scalars = True
    if floor.record_floor < 0 and not config().policy.floor:
        floor.record_floor = -_LEAST_FLOOR
    hooks.appears = _appearance(_packages())


def folder_of(package: str) -> str | None:
    """Return the folder that a top-level module or package lies in; None where it has none."""
    from importlib.util import find_spec  # a script must not wait for it

    try:
        found = find_spec(package)
    except failures(ImportError, ValueError):  # the run itself words it
        return None
    if found is None or found.origin is None or not os.path.isabs(found.origin):
        return None
    inside = os.path.dirname(found.origin)
    return inside if found.submodule_search_locations is None else os.path.dirname(inside)


def _print_like_python(error: BaseException) -> None:
    """Have the error, about to leave the program, printed without our frames."""
    traceback = error.__traceback__
    # The first frame is the running function's; _compile's follows where there is a syntax error.
    own = traceback.tb_next if traceback is not None else None
    if config().log_level == "off":
        from alight._src.record.tracebacks import clean_chain, without_ours  # late: few end so

        own = without_ours(own)
        clean_chain(error)
    elif own is not None and own.tb_frame.f_code is _compile.__code__:
        own = None
    show = sys.excepthook

    def excepthook(kind: type[BaseException], value: BaseException, _: Any) -> None:
        show(kind, value.with_traceback(own), own)

    sys.excepthook = excepthook
