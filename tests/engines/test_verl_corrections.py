"""A real run of verl with corrections: rows of both kinds, credited as ``ibpo`` says."""

import math
from pathlib import Path

import numpy as np
import pytest

from tests.engines import verl_toys as toys
from tests.engines.trl_toys import HALL

pytestmark = [pytest.mark.engine, pytest.mark.slow, toys.NEEDS_VERL]


def test_wrong_answers_are_corrected_and_both_are_learned_from(tmp_path: Path) -> None:
    config = toys.write_config(
        tmp_path / "run.yaml",
        toys.write_tiny(tmp_path / "model"),
        environment__name=HALL,
        environment__options={"horizon": 1},
        recipe__name="ibpo",
        rollout__max_turns=1,
        rollout__tasks=None,
        rollout__corrections=2,
        rollout__context=480,
        update__iterations=2,
        update__minibatches=2,
        update__rows_per_pass=2,
        engine__verl={
            "actor_rollout_ref.actor.policy_loss.loss_mode": "gspo",
            "actor_rollout_ref.actor.loss_agg_mode": "seq-mean-token-mean",
        },
    )
    lines = toys.train(config)
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
