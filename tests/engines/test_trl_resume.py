"""A run that is resumed in the middle of an iteration trains what it has not trained.

Page: docs/engines/trl_reference.md, "What works".
"""

from pathlib import Path
from typing import Any

import pytest

from tests.engines import trl_toys as toys

pytest.importorskip("trl")
pytestmark = [pytest.mark.engine, toys.QUIET]


def test_the_rest_of_an_iteration_is_trained(tmp_path: Path) -> None:
    """By the number of the part, of four that an iteration trains twice, for each step."""
    args = {
        "gradient_accumulation_steps": 1,
        "steps_per_generation": 4,
        "num_iterations": 2,
        "max_steps": 9,
        "save_strategy": "steps",
        "save_steps": 6,
    }
    found = []
    for checkpoint in (None, str(tmp_path / "checkpoint-6")):
        made = toys.own_trainer(tmp_path, args=args, recipe="gigpo")
        parts: list[int] = []
        note_parts(made, parts)
        made.train(resume_from_checkpoint=checkpoint)
        found.append(parts)
    whole, resumed = found
    assert whole == [0, 1, 2, 3, 0, 1, 2, 3, 0]
    assert resumed == [2, 3, 0]


def note_parts(made: Any, parts: list[int]) -> None:
    """Keep the number of the part of an iteration that each step trains."""
    loss = made.compute_loss

    def keep(model: Any, inputs: Any, **options: Any) -> Any:
        parts.append([part is inputs for part in made._buffered_inputs].index(True))
        return loss(model, inputs, **options)

    made.compute_loss = keep
