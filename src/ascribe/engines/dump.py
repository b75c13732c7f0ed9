"""What an iteration played and what it was trained on, as a file of rollouts."""

from pathlib import Path

from ascribe.engines.crediting import Iteration
from ascribe.rollout.record import States, arrow
from ascribe.steps.files import write

TRAINED = "trained_advantage"
"""The column with the advantage that each step was trained with."""


def dump(iteration: Iteration, folder: str | Path, number: int, states: States) -> Path:
    """Write ``rollouts_NUMBER.parquet``: the groups that count, whole or not at all.

    Besides what ``ascribe rollout`` writes there is ``trained_advantage``, and what the recipe was
    given besides, such as ``fingerprint``: ``ascribe credit`` on the file gives the same advantages
    again.
    """
    import pyarrow as pa

    steps = arrow(iteration.counted, states)
    if iteration.table is not None:
        credited = iteration.table.to_arrow()
        for name in credited.column_names:
            if name not in steps.column_names:
                steps = steps.append_column(name, credited.column(name))
    steps = steps.append_column(TRAINED, pa.array(iteration.advantage[iteration.counts]))
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"rollouts_{number:05d}.parquet"
    part = folder / f".{path.stem}.part.parquet"
    write(steps, part)
    part.replace(path)
    return path
