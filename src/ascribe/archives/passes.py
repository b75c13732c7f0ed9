"""What passes over parts of an archive keep of each part, and find."""

import io
from typing import Any

import numpy as np

from ascribe.archives.places import Place, seal, unseal


class Stored(dict[str, Any]):
    """What is kept of a part: arrays in files, read when they are asked for."""

    def __init__(self, work: Place, number: int) -> None:
        super().__init__()
        self.work, self.number = work, number

    def __missing__(self, name: str) -> Any:
        self.update(read_arrays(self._place(name)))
        return self[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self.pop(name, None)
        write_arrays(self._place(name), {name: value})

    def _place(self, name: str) -> Place:
        return self.work.child(f"kept-{self.number}-{name.replace(' ', '-')}.npz")


def write_arrays(place: Place, arrays: dict[str, Any]) -> None:
    """Write named arrays."""
    contents = io.BytesIO()
    np.savez(contents, allow_pickle=False, **arrays)
    place.write(seal(contents.getvalue()))


def read_arrays(place: Place) -> dict[str, Any]:
    """Named arrays that ``write_arrays`` wrote."""
    with np.load(io.BytesIO(unseal(place.read(), place.name)), allow_pickle=False) as arrays:
        return dict(arrays)
