"""Every elementwise op of the table, by the dtypes of its operands."""

from __future__ import annotations

from typing import Any

import numpy as np

from alight._src.ir.op_table import OPS, Kind, Op
from generated import loops

Signature = tuple[np.dtype[Any], ...]
CASES: dict[str, list[tuple[Op, Signature, np.dtype[Any], Any]]] = {}
for _op in OPS.values():
    if _op.kind is Kind.ELEMENTWISE:
        for _ins, _outs in loops(_op):
            for _place, _out in enumerate(_outs):
                _attrs: Any = (("output", _place),) if _op.nout > 1 else ()
                _attrs = (("dtype", _out),) if _op.name == "cast" else _attrs
                _key = "-".join(d.name for d in _ins)
                CASES.setdefault(_key, []).append((_op, _ins, _out, _attrs))
