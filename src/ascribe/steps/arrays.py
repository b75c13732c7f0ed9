"""Names for the few array types that functions take and return, and a ``repr`` without arrays."""

from dataclasses import fields
from enum import Enum
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Ints: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]
Bools: TypeAlias = npt.NDArray[np.bool_]
Codes8: TypeAlias = npt.NDArray[np.int8]
Objects: TypeAlias = npt.NDArray[Any]

LONGEST = 60
"""Characters of a value in a ``repr``."""


class Brief:
    """A dataclass whose ``repr`` gives arrays and long values by their size."""

    def __repr__(self) -> str:
        values = ((each.name, getattr(self, each.name)) for each in fields(self) if each.repr)  # type: ignore[arg-type]
        return f"{type(self).__name__}({', '.join(f'{n}={_brief(value)}' for n, value in values)})"


def _brief(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"<{value.dtype}: {' x '.join(f'{size:,}' for size in value.shape)}>"
    if (rows := getattr(value, "num_rows", None)) is not None:  # of Arrow
        return f"<{rows:,} rows, {value.num_columns} columns>"
    if isinstance(value, Enum):
        return str(value.name)
    sized = isinstance(value, list | tuple | dict)
    if sized and len(value) > 8:
        return f"<{len(value):,}>"
    text = repr(value)
    if sized and len(text) > LONGEST:
        return f"<{len(value):,}>"
    return f"{text[:LONGEST]}…" if isinstance(value, str) and len(text) > LONGEST else text
