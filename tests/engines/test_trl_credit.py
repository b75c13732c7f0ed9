"""AscribeTrainer on TRL's own generation: tools, environments and rollout functions.

Page: docs/engines/trl.md.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ascribe import recipe
from ascribe.engines import crediting
from ascribe.steps.files import read_table
from tests.engines import trl_toys as toys

pytest.importorskip("trl")
pytestmark = [pytest.mark.engine, toys.QUIET]


def batches(made: Any) -> list[Any]:
    """Train, and return the batch of each iteration."""
    kept = []
    score = made._generate_and_score_completions

    def keep(inputs: Any) -> Any:
        kept.append(score(inputs))
        return kept[-1]

    made._generate_and_score_completions = keep
    made.train()
    return kept


def test_grpo_is_trls_own(tmp_path: Path) -> None:
    from trl import GRPOTrainer

    theirs = batches(toys.own_trainer(tmp_path / "trl", GRPOTrainer, {"max_steps": 3}))
    grpo = recipe("grpo", std_epsilon=1e-4)
    ours = batches(toys.own_trainer(tmp_path / "ours", args={"max_steps": 3}, recipe=grpo))
    assert len(theirs) == len(ours) == 3
    for one, other in zip(theirs, ours, strict=True):
        mask = (one["completion_mask"] * one["tool_mask"]).numpy()
        np.testing.assert_array_equal(one["completion_ids"], other["completion_ids"])
        expected = one["advantages"].numpy()[:, None] * mask
        np.testing.assert_allclose(other["advantages"].numpy() * mask, expected, atol=1e-6)
        assert not (other["advantages"].numpy() * (1 - mask)).any()
    assert np.abs(np.concatenate([b["advantages"].numpy().ravel() for b in ours])).max() > 0.1


def test_gigpo_is_that_of_the_dump(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    crediting._BEGUN.clear()  # other tests of this process may have begun with the recipe
    crediting.say_once.cache_clear()
    made = toys.own_trainer(
        tmp_path, recipe="gigpo", dump_dir=tmp_path / "dump", args={"max_steps": 3}
    )
    kept = batches(made)
    assert caplog.text.count("With discount 0.95, a step gets") == 1
    assert caplog.text.count("turn_rewards of the rollout_func: ") == 1  # their sum is no reward
    for number, batch in enumerate(kept):
        path = tmp_path / "dump" / f"rollouts_{number:05d}.parquet"
        table = read_table(path)
        credit = recipe("gigpo")(table)
        mask = (batch["completion_mask"] * batch["tool_mask"]).numpy()
        starts = mask & ~np.pad(mask, ((0, 0), (1, 0)))[:, :-1]
        advantages = batch["advantages"].numpy()[starts.astype(bool)]
        np.testing.assert_allclose(advantages, credit.advantage, atol=1e-6)
        assert len(table) == starts.sum() > 16
    assert "ascribe/signal_share" in made.state.log_history[0]
    # TRL's table of completions shows them too, as the mean over an episode's tokens.
    mean = (batch["advantages"].numpy() * mask).sum(1) / mask.sum(1)
    np.testing.assert_allclose(made._logs["advantages"], mean, atol=1e-6)


@pytest.mark.parametrize(
    "args", [{}, {"mask_truncated_completions": True, "num_iterations": 2, "max_steps": 2}]
)
def test_a_turn_s_fingerprint_is_that_of_its_prompt_alone(
    args: dict[str, Any], tmp_path: Path
) -> None:
    """Also where TRL hides truncated completions, which these all are, from its own pass."""
    import torch

    from ascribe.engines.capture import capture, padded

    big, args = recipe("bigpo", radius=0.2), {"learning_rate": 0.0, **args}
    made = toys.own_trainer(tmp_path, recipe=big, fingerprints=0, args=args)
    batches(made)
    ids = [p + c for p, c in zip(*list(vars(made._sequences).values())[:2], strict=True)]
    table, spans = made._turns([{} for _ in ids])
    assert len(table) == len(made._vectors) > 16
    for row in range(len(table)):
        prompt = torch.tensor([ids[spans.sequence[row]][: spans.prompt[row]]])
        with torch.no_grad(), capture(made.model, 0) as hidden:
            hidden.expect(padded(torch.ones_like(prompt), [prompt.shape[1]]))
            made.model(prompt)
        np.testing.assert_allclose(
            made._vectors[row].astype(np.float32), hidden.fingerprints()[0].numpy(), atol=2e-3
        )


def test_a_completion_without_a_reward_takes_no_part(tmp_path: Path) -> None:
    def some(completions: Any, won: list[float], **_: Any) -> list[float | None]:
        return [None if number == 1 else each for number, each in enumerate(won)]

    from trl import GRPOTrainer

    grpo = recipe("grpo", std_epsilon=1e-4)
    (theirs,) = batches(toys.own_trainer(tmp_path / "a", GRPOTrainer, reward_funcs=some))
    (ours,) = batches(toys.own_trainer(tmp_path / "b", recipe=grpo, reward_funcs=some))
    mask = (theirs["completion_mask"] * theirs["tool_mask"]).numpy()
    expected = theirs["advantages"].numpy()[:, None] * mask
    np.testing.assert_allclose(ours["advantages"].numpy(), expected, atol=1e-6)
    assert not ours["advantages"][1].any()


@pytest.mark.parametrize("reward", [None, float("inf")])
def test_an_iteration_without_any_credit_goes_on(reward: float | None, tmp_path: Path) -> None:
    """No completion has a reward, or every group is dropped: the file has columns and no rows."""

    def nothing(completions: Any, **_: Any) -> list[float | None]:
        return [reward] * len(completions)

    made = toys.own_trainer(tmp_path, recipe="gigpo", reward_funcs=nothing, dump_dir=tmp_path)
    (batch,) = batches(made)
    assert not batch["advantages"].any()
    table = read_table(tmp_path / "rollouts_00000.parquet")
    assert len(table) == 0


def test_several_rollouts_for_one_update(tmp_path: Path) -> None:
    args = {"steps_per_generation": 1, "gradient_accumulation_steps": 2, "max_steps": 2}
    toys.own_trainer(tmp_path, args=args, dump_dir=tmp_path / "dump").train()
    files = sorted((tmp_path / "dump").iterdir())
    assert [file.name for file in files] == [f"rollouts_{n:05d}.parquet" for n in range(4)]
    assert [read_table(file).group.values.tolist() for file in files] == [
        [f"{n}/0"] for n in range(4)
    ]


def test_keys_of_the_caller(tmp_path: Path) -> None:
    def keyed(prompts: list[Any], trainer: Any) -> dict[str, list[Any]]:
        rows = toys.play(prompts, trainer)
        rows["turn_states"] = [[f"turn {n}" for n in range(len(r))] for r in rows["turn_rewards"]]
        return rows

    made = toys.own_trainer(
        tmp_path, recipe="gigpo", state="key", rollout_func=keyed, dump_dir=tmp_path
    )
    made.train()
    table = read_table(tmp_path / "rollouts_00000.parquet")
    assert set(table.state.values) <= {f"turn {n}" for n in range(4)}
    assert set(np.round(table.reward[table.step == 0], 6)) == {0.25}
    with pytest.raises(ValueError, match="rollout_func returned no turn_states"):
        toys.own_trainer(tmp_path, recipe="gigpo", state="key").train()


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        (
            {"fingerprints": "ngram"},
            "fingerprints is 'ngram', not .*fingerprint=\"ngram",
        ),
        ({"fingerprints": 9, "recipe": "bipace_q"}, "fingerprints is 9, and the model has 2 dec"),
        ({"state": str.upper}, "state: there is no choice .* take key, .* a property state_key"),
        (
            {"state": "observations"},
            "did you mean observation.* or return turn_states",
        ),
        ({"recipe": "pivotrl"}, "PivotRL is no recipe: .* the command ascribe pivots selects"),
    ],
)
def test_arguments_that_mean_something_else_are_refused_with_what_to_do(
    wrong: dict[str, Any], problem: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=problem):
        toys.own_trainer(tmp_path, **wrong)


def test_every_private_name_of_trl_is_checked_when_a_trainer_is_made(tmp_path: Path) -> None:
    """The names in the code that a GRPOTrainer or its parts have are those that are checked."""
    from trl import GRPOTrainer

    from ascribe.engines.trl import trainer
    from ascribe.engines.trl.trainer import HOOKS, RELEASES, check_trl

    made = toys.own_trainer(tmp_path, GRPOTrainer)
    used = toys.private_names(Path(str(trainer.__file__)))
    assert {name for name in used if hasattr(made, name)} == set(HOOKS)

    class Older:
        def _generate(self, prompts: Any) -> None: ...

    lacking = r"lacks _step, _logs, _metrics, _generate_single_turn\(prompt_ids\)"
    with pytest.raises(ImportError, match=lacking):
        check_trl(Older(), kind=Older)
    del made._step
    with pytest.raises(ImportError, match="lacks _step, on which"):
        check_trl(made)
    assert len(HOOKS) == 9
    page = (Path(__file__).parents[2] / "docs/engines/trl_reference.md").read_text()
    assert all(f"`{name}`" in page for name in HOOKS)
    assert all(f" {release} " in page for release in RELEASES)


def test_a_release_that_is_not_tested_is_named_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import trl

    for version, said in (("1.14.0", 0), ("1.16.9", 0), ("1.13.2", 1), ("1.17.0", 1)):
        monkeypatch.setattr(trl, "__version__", version)
        caplog.clear()
        for _ in range(2):
            toys.own_trainer(tmp_path)
        assert caplog.text.count(f"TRL {version} is not tested") == said


def test_functions_of_one_name_keep_their_rewards_apart(tmp_path: Path) -> None:
    def twice(completions: Any, won: list[float], **_: Any) -> list[float]:
        return [2 * each for each in won]

    twice.__name__ = "won"
    functions = [toys.won, twice]
    made = toys.own_trainer(
        tmp_path, recipe="gigpo", reward_funcs=functions, dump_dir=tmp_path, args={"max_steps": 1}
    )
    made.train()
    table = read_table(tmp_path / "rollouts_00000.parquet")
    totals = np.bincount(table.trajectory.codes, table.reward)
    assert {*totals.round(6)} == {0.0, 3.0}
