"""Names for the few array types that functions take and return."""

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Ints: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]
Bools: TypeAlias = npt.NDArray[np.bool_]
Codes8: TypeAlias = npt.NDArray[np.int8]
Objects: TypeAlias = npt.NDArray[Any]
