"""What becomes of TRL's options: the list is complete, and what it says of losses holds.

Page: docs/engines/trl_reference.md, "Options of TRL".
"""

import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ascribe.engines.trl.options import ASYNC_GRPO, GRPO
from tests.engines import trl_toys as toys
from tests.engines.untouched import UNTOUCHED

pytestmark = [pytest.mark.engine, toys.QUIET]

LOSSES = ("grpo", "bnpo", "dr_grpo", "dapo", "cispo", "sapo", "luspo", "vespo")


def test_every_option_of_trl_is_known() -> None:
    pytest.importorskip("trl")
    from transformers import TrainingArguments
    from trl import GRPOConfig
    from trl.experimental.async_grpo import AsyncGRPOConfig

    common = {field.name for field in fields(TrainingArguments)}
    for config, options in ((GRPOConfig, GRPO), (AsyncGRPOConfig, ASYNC_GRPO)):
        own = {field.name for field in fields(config)} - common
        untouched = UNTOUCHED[options.source.split("`")[1]].split()
        known = {*options.applied, *options.no_effect, *options.refused, *untouched}
        assert known == own  # of the releases that are tested


def test_the_list_needs_no_trl() -> None:
    """The pages are built without it."""
    code = "import ascribe.engines.trl.options, sys; print({'trl', 'torch'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "set()\n"


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({"scale_rewards": "batch"}, "scale_rewards is 'batch': the recipe scales"),
        ({"scale_rewards": False}, "scale_rewards is 'none': .* choose a recipe"),
        (
            {"multi_objective_aggregation": "normalize_then_sum"},
            "multi_objective_aggregation is .*; set it to sum_then_normalize",
        ),
        (
            {"importance_sampling_level": "sequence", "loss_type": "grpo"},
            "importance_sampling_level is 'sequence': all tokens of a row .*; set it to token",
        ),
    ],
)
def test_what_would_change_credit_is_refused(
    wrong: dict[str, Any], problem: str, tmp_path: Path
) -> None:
    pytest.importorskip("trl")
    with pytest.raises(ValueError, match=problem):
        toys.own_trainer(tmp_path, args=wrong)


def test_rows_of_one_turn_may_have_one_ratio(tmp_path: Path) -> None:
    pytest.importorskip("trl")
    wrong = {"importance_sampling_level": "sequence", "loss_type": "grpo"}
    made = toys.own_trainer(tmp_path, args=wrong, rollout_func=None, reward_funcs=by_length)
    assert made.importance_sampling_level == "sequence"


def by_length(completions: Any, **_: Any) -> list[float]:
    return [float(len(said[0]["content"])) for said in completions]


def learned(folder: Path, ratio: float = 1.0, sampler: Any = None, **args: Any) -> Any:
    """What TRL's loss adds to each token of a row, whose turns have the advantages 2, -1 and 0.5.

    Log-probabilities stand in for the model; ``sampler`` is the weight that corrects for vLLM.
    """
    import torch
    from trl import GRPOTrainer

    made = toys.own_trainer(folder, GRPOTrainer, args)
    made.current_gradient_accumulation_steps = 1
    log_probs = torch.full((1, 7), -1.0, requires_grad=True)
    entropies = torch.arange(7.0)[None]
    made._get_per_token_logps_and_entropies = lambda *_, **__: (log_probs, entropies, None)
    ones = torch.ones(1, 7, dtype=torch.long)
    inputs = {
        **dict.fromkeys(("prompt_ids", "prompt_mask", "completion_ids", "completion_mask"), ones),
        "tool_mask": torch.tensor([[1, 1, 0, 1, 1, 0, 1]]),
        "advantages": torch.tensor([[2.0, 2.0, 0.0, -1.0, -1.0, 0.0, 0.5]]),
        "num_items_in_batch": torch.tensor(5.0),
        "old_per_token_logps": torch.full((1, 7), -1.0 - float(np.log(ratio))),
    }
    if sampler is not None:
        made.use_vllm = True
        inputs["importance_sampling_ratio"] = torch.tensor(sampler)
    made._compute_loss(made.model, inputs).backward()
    return -log_probs.grad[0].numpy()


@pytest.mark.parametrize("loss", LOSSES)
def test_a_token_learns_from_the_advantage_of_its_turn(loss: str, tmp_path: Path) -> None:
    pytest.importorskip("trl")
    found = learned(tmp_path, loss_type=loss)
    scale = found[0] / 2.0
    assert scale > 0
    np.testing.assert_allclose(found, scale * np.array([2, 2, 0, -1, -1, 0, 0.5]), rtol=1e-5)


@pytest.mark.parametrize(
    ("ratio", "args", "expected"),
    [
        (1.5, {"loss_type": "dapo"}, [0, 0, 0, -1, -1, 0, 0]),  # good turns are clipped above 1.2
        (0.5, {"loss_type": "dapo"}, [1, 1, 0, 0, 0, 0, 1]),  # and bad ones below 0.8
        (1.5, {"loss_type": "dapo", "epsilon_high": 0.6}, [1, 1, 0, -1, -1, 0, 1]),
        (1.5, {"loss_type": "dapo", "delta": 1.3}, [0, 0, 0, 0, 0, 0, 0]),
        (1.5, {"loss_type": "dapo", "top_entropy_quantile": 0.5}, [0, 0, 0, -1, -1, 0, 0]),
        (0.2, {"loss_type": "cispo", "off_policy_mask_threshold": 0.1}, [1, 1, 0, 0, 0, 0, 1]),
    ],
)
def test_options_act_by_the_advantage_of_the_turn(
    ratio: float, args: dict[str, Any], expected: list[int], tmp_path: Path
) -> None:
    pytest.importorskip("trl")
    assert np.sign(learned(tmp_path, ratio, **args)).tolist() == expected


@pytest.mark.parametrize("sampler", [[[0.5]], [[0.5] * 7]])
def test_a_correction_for_the_sampler_leaves_the_advantages_of_turns(
    sampler: Any, tmp_path: Path
) -> None:
    pytest.importorskip("trl")
    plain, corrected = learned(tmp_path), learned(tmp_path, sampler=sampler)
    np.testing.assert_allclose(corrected, plain / 2, rtol=1e-6)


def test_one_ratio_for_a_row_gives_its_turns_the_mean(tmp_path: Path) -> None:
    """Which is why it is refused."""
    pytest.importorskip("trl")
    for loss in ("grpo", "luspo"):
        found = learned(tmp_path, loss_type=loss, importance_sampling_level="sequence")
        np.testing.assert_allclose(found[[0, 1, 3, 4, 6]], found[0], rtol=1e-5)
        assert not found[[2, 5]].any()
