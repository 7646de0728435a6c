"""Make the type stubs of the public namespaces: ``src/alight/{__init__,fft,linalg,random}.pyi``.

``python tools/stubs.py`` writes them, ``--check`` ends with 1 where they are not as written. Names
and parameters are asked of the running namespaces, which take them from the op table and from
NumPy; what a function returns is said below. ``tests/test_stubs.py`` lets mypy's stubtest compare
the stubs with the package.
"""

from __future__ import annotations

import argparse
import inspect
import sys
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

import alight
from alight._src.api.namespace_lookup import Indexed
from alight._src.api.ufunc_objects import Ufunc

FOLDER = Path(__file__).resolve().parents[1] / "src" / "alight"


def each(names: str, said: str) -> dict[str, str]:
    """Return what is said of each of these names."""
    return dict.fromkeys(names.split(), said)


# Functions that return something other than one Array, or one of several things; all others of
# alight's return an Array.
OTHERS = {
    **each(
        "allclose array_equal array_equiv can_cast iscomplexobj isfortran isrealobj isscalar "
        "may_share_memory shares_memory",
        "builtins.bool",
    ),
    **each("array2string array_repr array_str", "str"),
    **each("ndim size", "int"),
    "random.default_rng": "Generator",
    "shape": "tuple[int, ...]",
    **each(
        "copyto fill_diagonal place put put_along_axis putmask save savetxt savez "
        "savez_compressed random.seed random.set_bit_generator random.set_state "
        "random.shuffle",
        "None",
    ),
    **each("array_split dsplit hsplit split vsplit", "list[Array]"),
    **each(
        "broadcast_arrays diag_indices diag_indices_from histogram histogram2d ix_ mask_indices "
        "meshgrid nonzero polydiv tril_indices tril_indices_from triu_indices triu_indices_from "
        "unravel_index unstack",
        "tuple[Array, ...]",
    ),
    # What they return depends on their arguments, or is no array of numbers.
    **each(
        "apply_along_axis apply_over_axes imag real isreal iscomplex trim_zeros asmatrix "
        "atleast_1d atleast_2d atleast_3d "
        "average bmat busday_count busday_offset common_type datetime_as_string "
        "einsum_path fromfunction fromfile fromiter fromregex fromstring frombuffer frompyfunc "
        "genfromtxt gradient histogramdd is_busday load loadtxt min_scalar_type nested_iters "
        "piecewise poly polyfit polyint polyder polyadd polysub polymul polyval real_if_close "
        "require result_type roots test unique unique_all unique_counts unique_inverse lexsort "
        "linalg.eig linalg.eigh linalg.lstsq linalg.qr linalg.slogdet linalg.svd "
        "random.bytes random.get_bit_generator random.get_state",
        "Any",
    ),
}

# Functions whose results depend on how many arguments there are.
OVERLOADS = {
    "where": ("condition: Any, /", "tuple[Array, ...]", "condition: Any, x: Any, y: Any, /"),
}

# Attributes of Arrays that are not called, and their types.
ATTRIBUTES = {
    **each("T mT real imag", "Array"),
    "shape": "tuple[int, ...]",
    "strides": "tuple[int, ...]",
    **each("ndim size itemsize nbytes", "int"),
    "dtype": "np.dtype[Any]",
    "device": "str",
}
# Methods of Arrays that return something else than an Array.
METHODS = {
    **each("fill partition put resize setfield setflags sort tofile dump", "None"),
    **each("tobytes dumps", "bytes"),
    "nonzero": "tuple[Array, ...]",
    "as_integer_ratio": "tuple[int, int]",
    **each("item tolist", "Any"),
    "to_numpy": "np.ndarray[Any, Any]",
    "hex": "str",
    "is_integer": "builtins.bool",
    "__array__": "np.ndarray[Any, Any]",
    **each("__bool__ __contains__", "builtins.bool"),
    **each("__len__ __int__ __index__ __trunc__ __sizeof__", "int"),
    "__float__": "float",
    "__complex__": "complex",
    **each("__repr__ __str__ __format__", "str"),
    **each("__setitem__ __delitem__ __setattr__ __delattr__ __init__", "None"),
    "__iter__": "Iterator[Any]",
    **each("__divmod__ __rdivmod__", "tuple[Array, Array]"),
    **each(
        "__array_function__ __array_ufunc__ __array_namespace__ __dlpack__ __dlpack_device__ "
        "__reduce__ __reduce_ex__ __round__",
        "Any",
    ),
}
# Of the object's own machinery, said by other means, or not for users.
PASSED = each(
    "of operators storage window "
    "__class__ __dir__ __doc__ __getattribute__ __getstate__ __init_subclass__ __module__ __new__ "
    "__slots__ __subclasshook__ __hash__ __init__ __setattr__ __delattr__ __sizeof__ "
    "__array_priority__ __array_interface__",
    "passed",
)

# Where the type checker is told that an Array is meant to differ from what it expects.
UNUSUAL = {
    **dict.fromkeys(("__eq__", "__ne__"), "  # type: ignore[override]"),
    "__ipow__": "  # type: ignore[misc]",
}

HEAD = '''"""Made by ``python tools/stubs.py`` with NumPy {series}; not edited by hand."""

'''

UFUNC = """@type_check_only
class _OneResult(Protocol):
    def __call__(self, *args: Any, **kwargs: Any) -> Array: ...
    def reduce(self, array: Any, /, *args: Any, **kwargs: Any) -> Array: ...
    def accumulate(self, array: Any, /, *args: Any, **kwargs: Any) -> Array: ...
    def reduceat(self, array: Any, /, indices: Any, *args: Any, **kwargs: Any) -> Array: ...
    def outer(self, A: Any, B: Any, /, **kwargs: Any) -> Array: ...
    def at(self, a: Any, indices: Any, *b: Any) -> None: ...
    def __getattr__(self, name: str) -> Any: ...

@type_check_only
class _TwoResults(Protocol):
    def __call__(self, *args: Any, **kwargs: Any) -> tuple[Array, Array]: ...
    def __getattr__(self, name: str) -> Any: ...
"""


GENERATORS = ("Generator", "RandomState")
# Where classes of alight's are defined that say another module, by which pickles find them.
DEFINED = {
    "vectorize": "alight._src.api.namespace_lookup",
    "Counter": "alight._src.api.counter_rng",
}


def parameters(made: Any, method: bool = False) -> str:
    """Return the parameters of a callable as a stub has them: without types, defaults left out."""
    try:
        found = list(inspect.signature(made).parameters.values())
    except (TypeError, ValueError):
        return "self, *args: Any, **kwargs: Any" if method else "*args: Any, **kwargs: Any"
    written: list[str] = ["self"] if method else []
    found = found[1:] if method and found and found[0].name == "self" else found
    kinds = [p.kind for p in found]
    for place, p in enumerate(found):
        if p.kind is p.KEYWORD_ONLY and not {p.VAR_POSITIONAL, p.KEYWORD_ONLY} & {*kinds[:place]}:
            written.append("*")
        star = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
        written.append(f"{star}{p.name}: Any{'' if p.default is p.empty else ' = ...'}")
        after = kinds[place + 1 : place + 2]
        if p.kind is p.POSITIONAL_ONLY and after != [p.POSITIONAL_ONLY]:
            written.append("/")
    return ", ".join(written)


def array() -> str:
    """Return the stub of the class Array."""
    lines = ["class Array:", "    def __new__(cls, *args: Any, **kwargs: Any) -> Self: ..."]
    for name in sorted(dir(alight.Array)):
        made = inspect.getattr_static(alight.Array, name)
        inner = name.startswith("_") and not name.endswith("__")
        if name in PASSED or inner:
            continue
        if name in ATTRIBUTES or not callable(getattr(alight.Array, name)):
            lines += [
                "    @property",
                f"    def {name}(self) -> {ATTRIBUTES.get(name, 'Any')}: ...",
            ]
            if isinstance(made, property) and made.fset is not None:
                lines += [f"    @{name}.setter", f"    def {name}(self, value: Any) -> None: ..."]
            continue
        returned = METHODS.get(name, "Array")
        given = parameters(getattr(alight.Array, name), method=True)
        unusual = UNUSUAL.get(name, "")
        lines.append(f"    def {name}({given}) -> {returned}: ...{unusual}")
    lines.append("    __hash__: Any")
    return "\n".join(lines) + "\n"


def listed(names: Iterable[str]) -> str:
    """Return the line that says which names a star imports."""
    return f"__all__ = {sorted(names)!r}"


def entry(name: str, made: Any, where: str = "") -> str | None:
    """Return the line that declares a public name, or None where it is declared elsewhere."""
    inside = np if not where else getattr(np, where)
    theirs = getattr(inside, name, None)
    if isinstance(made, Ufunc):
        if where:
            return f"{name}: _Ufunc"
        return f"{name}: {'_OneResult' if made.nout == 1 else '_TwoResults'}"
    if isinstance(made, Indexed):
        return f"{name}: Any"
    if isinstance(made, type) and made is not theirs:
        return f"from {DEFINED.get(name, made.__module__)} import {name} as {name}"
    if made is theirs and (isinstance(made, type) or inspect.isroutine(made)):
        return f"from {inside.__name__} import {name} as {name}"
    if isinstance(made, ModuleType):
        return f"from {inside.__name__} import {name} as {name}"
    if not callable(made):
        return f"{name}: {'builtins.bool' if type(made) is bool else 'Any'}"
    if name in OVERLOADS and not where:
        few, other, all_given = OVERLOADS[name]
        forms = ((few, other), (all_given, "Array"))
        return "\n".join(f"@overload\ndef {name}({given}) -> {to}: ..." for given, to in forms)
    # What is drawn without a size is a Python number.
    usual = "Any" if where == "random" else "Array"
    returned = OTHERS.get(f"{where}.{name}" if where else name, usual)
    return f"def {name}({parameters(made)}) -> {returned}: ..."


def whole() -> str:
    """Return the stub of ``alight`` itself."""
    own = {
        "forecast": ["device_report", "estimate", "fastest_device", "fusion_report"],
        "explained_call": ["explain"],
        "report": ["devices", "report", "reset"],
    }
    lines = [
        "import builtins",
        "from collections.abc import Iterator",
        "from typing import Any, Protocol, Self, overload, type_check_only",
        "",
        "import numpy as np",
        "from alight import fft as fft, linalg as linalg, ops as ops, random as random",
        "from alight._src.config.loading import policy as policy",
        *(
            f"from alight._src.explain.{module} import {name} as {name}"
            for module, names in own.items()
            for name in names
        ),
        "from alight._src.api.ufunc_objects import Ufunc as ufunc",
        "from alight._src.jit.decorator import jit as jit",
        "from alight._src.bench.imported_results import import_results as import_results",
        "from alight._src.launch.install import install as install",
        "",
        "__version__: str",
        "__array_api_version__: str",
        "from alight._src.api.namespace_lookup import NamespaceInfo as __array_namespace_info__",
        "def __dir__() -> list[str]: ...",
        f"def evaluate({parameters(alight.evaluate)}) -> None: ...",
        "",
    ]
    passed = {"Array", "ndarray", "ufunc", "evaluate", "jit", "policy", "fft", "linalg", "ops"}
    passed |= {"random", "install", "import_results"}
    passed |= {name for names in own.values() for name in names}
    found = [entry(n, getattr(alight, n)) for n in alight.__all__ if n not in passed]
    imports = [line for line in found if line and line.startswith("from ")]
    rest = [line for line in found if line and not line.startswith("from ")]
    body = [
        *lines,
        *imports,
        "",
        listed(alight.__all__),
        array(),
        "ndarray = Array",
        "",
        UFUNC,
        *rest,
    ]
    return "\n".join(body) + "\n"


def generator(made: type) -> list[str]:
    """Return the stub of one of NumPy's generators whose draws are Arrays, or Python numbers."""
    base = made.__mro__[1]
    lines = [f"class {made.__name__}({base.__module__.partition('.')[0]}.random.{base.__name__}):"]
    for name in sorted(n for n in vars(made) if not n.startswith("_")):
        given = parameters(getattr(made, name), method=True)
        lines.append(f"    def {name}({given}) -> Any: ...")
    return lines


def part(name: str) -> str:
    """Return the stub of a namespace beside."""
    module = import_module(f"alight.{name}")
    lines = ["from typing import Any", "", "import numpy", "from alight import Array"]
    public = [n for n in dir(module) if not n.startswith("_")]
    classes = [n for n in public if n in GENERATORS and name == "random"]
    found = [entry(n, getattr(module, n), name) for n in public if n not in classes]
    lines += [line for line in found if line and line.startswith("from ")]
    lines += ["", listed(public)]
    for n in classes:
        lines += ["", *generator(getattr(module, n)), ""]
    lines += [line for line in found if line and not line.startswith("from ")]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Write the stubs, or say which are not as written."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, compare")
    check = parser.parse_args().check
    head = HEAD.format(series=".".join(np.__version__.split(".")[:2]))
    made = {"__init__": whole(), **{name: part(name) for name in ("fft", "linalg", "random")}}
    other = []
    for name, text in made.items():
        path = FOLDER / f"{name}.pyi"
        if check:
            if not path.exists() or path.read_text(encoding="utf-8") != head + text:
                other.append(path.name)
        else:
            path.write_text(head + text, encoding="utf-8")
    if other:
        print(f"not as tools/stubs.py makes them: {', '.join(other)}. Fix: python tools/stubs.py")
    return bool(other)


if __name__ == "__main__":
    sys.exit(main())
