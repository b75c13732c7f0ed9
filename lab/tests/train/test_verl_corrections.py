"""A real run of verl with corrections, credited as ``ibpo`` says, that is killed and resumed."""

import math
from pathlib import Path

import numpy as np
import pytest

from ascribe_lab.train.episodes import task_row
from lab.tests.train import verl_toys as toys
from lab.tests.train.trl_games import HALL

pytestmark = [pytest.mark.engine, pytest.mark.slow, toys.NEEDS_VERL]


def test_a_killed_run_with_corrections_goes_on_and_a_step_without_rows_changes_nothing(
    tmp_path: Path,
) -> None:
    """It is killed amid step 2. In the third step no prompt fits into the context."""
    from transformers import AutoTokenizer

    tasks, seed = list(range(6)), 0
    model = toys.write_tiny(tmp_path / "model")
    tokenizer = AutoTokenizer.from_pretrained(model)
    tokenizer.chat_template += (
        "{% if enable_thinking is defined and not enable_thinking %}now {% endif %}"
    )
    tokenizer.save_pretrained(model)
    third = [task_row(group, seed, "train", tasks)["task"] for group in (4, 5)]
    config = toys.write_config(
        tmp_path / "run.yaml",
        model,
        environment__name=HALL,
        environment__options={"horizon": 1, "long": third},
        recipe__name="ibpo",
        rollout__max_turns=1,
        rollout__tasks=tasks,
        rollout__corrections=2,
        rollout__context=480,
        update__seed=seed,
        update__iterations=3,
        update__minibatches=2,
        update__rows_per_pass=2,
        update__ratio="sequence",
        engine__verl={
            "+data.apply_chat_template_kwargs.enable_thinking": False,
        },
    )
    running = toys.start(config, SPY_SLOW="5")
    toys.wait_for((tmp_path / "spied" / "begun_00002.json").exists)
    toys.kill(running)
    assert [line["iteration"] for line in toys.metrics(config)] == [1]
    *lines, empty = toys.train(config, "--resume")
    assert [line["iteration"] for line in (*lines, empty)] == [1, 2, 3]
    assert empty["ascribe/failed"] == 8
    assert empty["ascribe/rows"] == empty["ascribe/missing"] == 0
    assert "actor/pg_loss" not in empty
    before, after = (
        tmp_path / "run" / "checkpoints" / f"global_step_{step}" / "actor" / "huggingface"
        for step in (2, 3)
    )
    assert weights(tmp_path / "model") != weights(before) == weights(after)
    prompts = [row["prompts"] for row in toys.given(config, 2) if not row["padding"]]
    assert all(tokenizer.decode(ids).rstrip().endswith("now") for ids in prompts)
    toys.dumped(config)[2].unlink()  # it has no steps
    played = [name for name, _ in toys.tasks_played(config)]
    assert [name for name in played if "corrects" not in name] == [
        f"train/{group}/{member}" for group in range(4) for member in range(4)
    ]
    toys.assert_credited(config)
    assert [line["ascribe/episodes"] for line in lines] == [8, 8]
    assert all(math.isfinite(line["actor/pg_loss"]) for line in lines)
    assert any(line["actor/grad_norm"] > 0 for line in lines)
    for line, file in zip(lines, toys.dumped(config), strict=True):
        steps = toys.read(file)
        corrects = [text or "" for text in (steps.table.corrects or steps.table.group).texts()]
        right = steps.table.reward >= 1
        names = zip(steps.table.trajectory.texts(), corrects, right, strict=True)
        wrong = [name for name, mends, good in names if not mends and not good]
        assert sorted(filter(None, corrects)) == sorted([*wrong, *wrong])
        mended = np.array([bool(mends) for mends in corrects])
        assert line["ascribe/credit/corrections"] == mended.sum() > 0
        assert line["ascribe/credit/corrections_right"] == pytest.approx(right[mended].mean())
        assert line["ascribe/rows"] == len(steps.table)


def weights(folder: Path) -> dict[str, list[float]]:
    """All numbers, by name; one that is tied to another is left out."""
    from safetensors.torch import load_file

    parameters = load_file(folder / "model.safetensors")
    return {name: one.flatten().tolist() for name, one in parameters.items() if "head" not in name}
