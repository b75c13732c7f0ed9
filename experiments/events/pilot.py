"""Where do the policies of the study start, and how many of their states are alone?

A case is an environment; ``noise`` and ``updates`` are those of the demonstrations that a start
copies. ``won`` is the success of the start at the tasks of training, ``held_out`` at those of
evaluation, ``steps`` the mean length of an episode. ``alone`` is the share of steps alone in their
state by the environment's key, among those of eight episodes of a task; ``alone_text`` by what the
policy reads.
"""

from collections import Counter

import numpy as np

from benchmarks.common import Figures
from experiments import learning_loop as loop
from experiments.events.events import PLACES, SHARED_SEED
from experiments.events.worlds import WORLDS


def main() -> None:
    """Make each start, and play it."""
    with Figures("pilot") as figures:
        for name, place in PLACES.items():
            world, start = WORLDS[name], place.start
            updates = 2 if figures.quick else start.updates
            policy = loop.clone(name, loop.Start(start.noise, updates), SHARED_SEED)
            tasks = world.tasks[: 4 if figures.quick else 40]
            steps, won = loop.play_policy(policy, world, tasks, loop.SIZE, "pilot")
            unseen = world.unseen[: 4 if figures.quick else 64]
            _, held_out = loop.play_policy(policy, world, unseen, 4, "pilot unseen")
            figures.emit(name, "noise", start.noise, "share", "higher")
            figures.emit(name, "updates", updates, "updates", "lower")
            figures.emit(name, "won", won, "share", "higher")
            figures.emit(name, "held_out", held_out, "share", "higher")
            figures.emit(name, "steps", len(steps) / len(tasks) / loop.SIZE, "steps", "lower")
            for metric, of in (("alone", "state"), ("alone_text", "prompt")):
                counts = Counter((step.group, getattr(step, of)) for step in steps)
                share = float(np.mean([counts[s.group, getattr(s, of)] == 1 for s in steps]))
                figures.emit(name, metric, share, "share", "higher")


if __name__ == "__main__":
    main()
