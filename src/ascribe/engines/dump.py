"""What an iteration played and what it was trained on, as a file of rollouts."""

from pathlib import Path

from ascribe.engines.crediting import Iteration
from ascribe.files import write
from ascribe.rollout.record import States, arrow

TRAINED = "trained_advantage"
"""The column with the advantage that each step was trained with."""


def dump(iteration: Iteration, folder: str | Path, number: int, states: States) -> Path:
    """Write ``rollouts_NUMBER.parquet``: the groups that count, whole or not at all.

    Besides what ``ascribe rollout`` writes there is ``trained_advantage``, and ``fingerprint`` if
    the recipe asked for it: ``ascribe credit`` on the file gives the same advantages again.
    """
    import pyarrow as pa

    steps = arrow(iteration.counted, states)
    if iteration.table is not None and iteration.table.fingerprint is not None:
        vectors = iteration.table.to_arrow().column("fingerprint")
        steps = steps.append_column("fingerprint", vectors)
    steps = steps.append_column(TRAINED, pa.array(iteration.advantage[iteration.counts]))
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"rollouts_{number:05d}.parquet"
    part = folder / f".{path.stem}.part.parquet"
    write(steps, part)
    part.replace(path)
    return path
