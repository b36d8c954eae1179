"""Python functions that DataFrames call: recorded as Spark's workers read them, under a name that says
what they do.

The name has a digest of the function in it, wherever its lines stand: another function makes another
view, and the same one, whoever calls it, is declared once.
"""

from __future__ import annotations

import base64
import hashlib
import io
import os
import pickle
import re
import sys
from collections import ChainMap
from pathlib import Path
from types import CodeType
from typing import Any

from pyspark.cloudpickle import CloudPickler, register_pickle_by_value
from pyspark.util import PythonEvalType

from lockstep.frames.context import Context
from lockstep.frames.frame import quoted
from lockstep.frames.group_functions import of_rows
from lockstep.frames.literals import type_text

__all__ = ["is_of_a_group", "own_modules_by_value", "python_function"]

_DIGITS = 12
_OF_A_ROW = frozenset(
    {
        PythonEvalType.SQL_BATCHED_UDF,
        PythonEvalType.SQL_ARROW_BATCHED_UDF,
        PythonEvalType.SQL_SCALAR_PANDAS_UDF,
        PythonEvalType.SQL_SCALAR_PANDAS_ITER_UDF,
        PythonEvalType.SQL_SCALAR_ARROW_UDF,
        PythonEvalType.SQL_SCALAR_ARROW_ITER_UDF,
    }
)
_OF_A_GROUP = frozenset(
    {PythonEvalType.SQL_GROUPED_AGG_PANDAS_UDF, PythonEvalType.SQL_GROUPED_AGG_ARROW_UDF}
)
_DECLARED = """\
CREATE FUNCTION {name} USING python OPTIONS (
  'returns' = '{returns}', 'kind' = '{kind}', 'python' = '{python}',
  'command' = '{command}');
"""


def own_modules_by_value(folder: Path) -> None:
    """Have what functions import from the project pickled with them: workers have no such modules."""
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if file and Path(file).is_relative_to(folder):
            register_pickle_by_value(module)  # type: ignore[no-untyped-call]


def is_of_a_group(function: Any) -> bool:
    """Whether a function of the protobuf, which need not be one in Python, takes the rows of a group."""
    return function.python_udf.eval_type in _OF_A_GROUP


def python_function(function: Any, context: Context) -> tuple[str, str]:
    """The name under which SQL calls a function of the protobuf, and the one that it has in Python; its
    declaration is added to the context. One of a group takes the list of its rows, each a struct of the
    arguments. Raises NotSupported."""
    shown, python = function.function_name, function.python_udf
    if function.WhichOneof("function") != "python_udf":
        raise context.refuse(f"the function {shown}, which is not in Python,", "write it in Python")
    if not function.deterministic:
        raise context.refuse(
            f"the Python function {shown}, which is declared as not deterministic,",
            "derive its value from columns, and leave asNondeterministic out",
        )
    of_a_group = is_of_a_group(function)
    if python.eval_type not in _OF_A_ROW and not of_a_group:
        raise context.refuse(
            f"the Python function {shown}, which is of no row's and no group's values,",
            "declare it with F.udf, F.pandas_udf or F.arrow_udf",
        )
    named = next(
        (one for one in function.arguments if one.HasField("named_argument_expression")), None
    )
    if named is not None:
        key = named.named_argument_expression.key
        raise context.refuse(f"the argument {key} by its name", "give the arguments in their order")
    plain = re.sub(r"\W+", "_", shown).strip("_").lower() or "function"
    called = pickle.loads(python.command)
    kind = python.eval_type
    what = (type_text(python.output_type), str(kind), python.python_ver)
    digest = hashlib.sha256("\n".join(what).encode() + _pickled(called, has_lines=False))
    if of_a_group:
        of_arrow = kind == PythonEvalType.SQL_GROUPED_AGG_ARROW_UDF
        run, returns = called
        called = (of_rows(run, returns, of_arrow=of_arrow), returns)
        kind = PythonEvalType.SQL_SCALAR_ARROW_UDF
    name = f"{plain}_{digest.hexdigest()[:_DIGITS]}"
    context.functions[name] = _DECLARED.format(
        name=quoted(name),
        returns=type_text(python.output_type),
        kind=kind,
        python=python.python_ver,
        command=base64.b64encode(_pickled(called, has_lines=True)).decode("ascii"),
    )
    return name, shown


def _pickled(called: Any, *, has_lines: bool) -> bytes:
    """As Spark pickles it, with the files of code named as the project names them; `has_lines` is for
    tracebacks."""
    buffer = io.BytesIO()
    _Pickler(buffer, has_lines).dump(called)  # type: ignore[no-untyped-call]
    return buffer.getvalue()


class _Pickler(CloudPickler):
    """Leaves out where the project lies: that is no part of what a function does."""

    def __init__(self, buffer: io.BytesIO, has_lines: bool) -> None:
        self._has_lines = has_lines
        # Before the pickler is made, which looks at it then.
        self.dispatch_table = ChainMap({CodeType: self._reduced}, CloudPickler.dispatch_table)
        super().__init__(buffer)  # type: ignore[no-untyped-call]

    def _function_getnewargs(self, func: Any) -> Any:
        code, base_globals, *others = super()._function_getnewargs(func)  # type: ignore[no-untyped-call]
        base_globals.pop("__file__", None)
        return code, base_globals, *others

    def _reduced(self, code: CodeType) -> Any:
        code = code.replace(co_filename=os.path.relpath(code.co_filename))
        if not self._has_lines:
            code = code.replace(co_filename="", co_firstlineno=1, co_linetable=b"")
        return CloudPickler.dispatch_table[CodeType](code)
