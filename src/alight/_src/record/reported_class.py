"""Which code is told that an array is an ndarray, and by that takes it for what it means.

`isinstance` asks an array for its ``__class__``. The truth is that it is no ndarray, and code that
reaches for an ndarray's memory must hear it. Some of the code of packages only asks to learn what
an argument means, and then takes it by ``np.asarray``: there the truth turns masks into keys.
"""

from __future__ import annotations

import os
from types import CodeType

from alight._src.base.originals import np

__all__ = ["asks_what_it_means", "class_told"]

# By the end of a file's path; of some files only these functions. Where pandas builds columns it
# must hear the truth, or it keeps what its C code does not take.
_ASKING: dict[tuple[str, ...], frozenset[str] | None] = {
    ("pandas", "core", "common.py"): None,  # is it a mask, labels, the seed of random numbers
    ("pandas", "core", "groupby", "grouper.py"): None,  # is it a key by itself
    ("pandas", "core", "indexers", "utils.py"): None,  # how long is an indexer
    ("pandas", "core", "algorithms.py"): frozenset(("_ensure_arraylike", "factorize")),
    ("pandas", "core", "frame.py"): frozenset(
        f"DataFrame.{name}"
        for name in ("set_index", "__setitem__", "_setitem_frame", "_align_for_op")
    ),
    ("pandas", "core", "dtypes", "cast.py"): frozenset(("infer_dtype_from_scalar",)),
    ("pandas", "core", "dtypes", "missing.py"): frozenset(("_isna", "_isna_array")),
    ("pandas", "core", "missing.py"): frozenset(("mask_missing",)),
    ("numpy", "testing", "_private", "utils.py"): None,  # is it compared element by element
    ("scipy", "sparse", "_sputils.py"): frozenset(("isdense",)),  # is it a number
}
_ENDS = {os.sep + os.path.join(*parts): functions for parts, functions in _ASKING.items()}
_known: dict[str, frozenset[str] | bool] = {}


def asks_what_it_means(code: CodeType) -> bool:
    """Tell whether code of a package asks for an ndarray only to learn what it was given."""
    path = code.co_filename
    found = _known.get(path)
    if found is None:
        found = False
        for end, functions in _ENDS.items():
            if path.endswith(end):
                found = True if functions is None else functions
        _known[path] = found
    return found if isinstance(found, bool) else code.co_qualname in found


def class_told(own: type, code: CodeType) -> type:
    """Return the class that an array tells the code that asks for it, outside of `jit` and
    `alight run`."""
    return np.ndarray if asks_what_it_means(code) else own
