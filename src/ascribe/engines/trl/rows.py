"""From trajectories to rows of tokens, in one of two layouts.

``step``: one row for each decision, its prompt and its response. ``trajectory``: one row for each
trajectory, its first prompt and then responses and what the environment said, as one text; that is
the same computation only where every prompt is the text so far and more.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from ascribe.rollout.episode import Step
from ascribe.rollout.run import Trajectory
from ascribe.steps.arrays import Ints

Layout = Literal["step", "trajectory"]
"""What one row of a batch holds: one decision, or a whole trajectory."""


class NotOneText(ValueError):  # noqa: N818 (named for what is wrong)
    """A prompt does not go on from the text before it, so a trajectory is no single row."""


@dataclass(frozen=True, eq=False)
class Row:
    """One sequence of tokens to learn from."""

    prompt: tuple[int, ...]
    completion: tuple[int, ...]
    step: Ints
    """For each token of the completion the number of the step that wrote it; -1 for the
    environment's. Steps are numbered over all trajectories that were given."""
    decides: Ints
    """For each step the position of the last token that it saw, counted from the row's first."""

    @cached_property
    def steps(self) -> Ints:
        """The steps of the row, in order."""
        return np.unique(self.step[self.step >= 0])

    @cached_property
    def tokens(self) -> int:
        """How many tokens the policy wrote."""
        return int(np.count_nonzero(self.step >= 0))


def rows_of(trajectories: Sequence[Trajectory], layout: Layout) -> list[Row]:
    """The rows of trajectories, in their order.

    Raises:
        NotOneText: in the layout ``trajectory``, if a prompt does not go on from what was before.
        ValueError: if the policy gave no token ids.
    """
    rows, first = [], 0
    for trajectory in trajectories:
        steps = trajectory.steps
        if any(not step.sample.response_ids for step in steps):
            raise ValueError(f"{trajectory.name}: the policy gave no token ids to learn from")
        if layout == "step":
            rows += [_row([step], first + number) for number, step in enumerate(steps)]
        else:
            rows.append(_row(steps, first, trajectory.name))
        first += len(steps)
    return rows


def _row(steps: Sequence[Step], first: int, name: str = "") -> Row:
    """Steps one after another, as one row; ``first`` is the number of the first of them."""
    prompt = steps[0].sample.prompt_ids
    whole: list[int] = list(prompt)
    owner: list[int] = []
    decides = []
    for number, step in enumerate(steps, start=first):
        asked = step.sample.prompt_ids
        if list(asked[: len(whole)]) != whole:
            raise NotOneText(
                f"{name}: the prompt of step {number - first} does not begin with the text before "
                "it. Trajectories are one row only under a prompt that shows the whole chat, with "
                "the tokens that were sampled; use layout='step' for an agent that forgets"
            )
        said = asked[len(whole) :]
        decides.append(len(asked) - 1)
        owner += [-1] * len(said) + [number] * len(step.sample.response_ids)
        whole += said + step.sample.response_ids
    return Row(prompt, tuple(whole[len(prompt) :]), np.array(owner), np.array(decides))
