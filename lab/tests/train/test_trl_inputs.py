"""Runs of TRL in which the recipe's columns come from the engine, or from a rollout function.

Page: docs/estimators/columns.md.
"""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ascribe import recipe
from ascribe.steps.files import read_table
from ascribe_lab.rollout import Setup
from lab.tests.train import trl_games as toys

pytest.importorskip("trl")
pytest.importorskip("snowballstemmer")
pytestmark = [pytest.mark.engine, toys.QUIET]

BY = recipe("entropy", wraps="progress gamma=1.0")
SEARCH = Setup("search_qa", {}, style="plain", pool="serial")


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    """Two iterations in search QA by ``entropy`` around ``progress``: both columns are TRL's."""
    folder = tmp_path_factory.mktemp("searched")
    made = toys.trainer(
        folder,
        setup=SEARCH,
        recipe=BY,
        max_turns=3,
        dump_dir=folder / "rollouts",
        args={"max_steps": 2},
    )
    made.train()
    return made, folder / "rollouts"


def test_credit_follows_from_the_columns_of_the_run(searched: tuple[Any, Path]) -> None:
    made, folder = searched
    for number in (0, 1):
        path = folder / f"rollouts_{number:05d}.parquet"
        table = read_table(path)
        assert table.score is not None
        assert table.entropy is not None
        assert ((table.score > 0) & (table.score < 1)).all()
        assert ((table.entropy > 0) & (table.entropy <= math.log(len(toys.tokenizer())))).all()
        import pyarrow.parquet as pq

        trained = pq.read_table(path)["trained_advantage"].to_numpy()
        credit = BY(table)
        np.testing.assert_allclose(trained, credit.advantage, atol=1e-6)
        assert credit.credited.any()
        assert np.ptp(credit.advantage) > 0
    assert all(math.isfinite(loss) for loss in toys.logged(made, "loss"))


def test_scores_and_entropies_are_those_of_the_model(tmp_path: Path) -> None:
    """Of the first iteration, computed again from the written tokens."""
    import pyarrow.parquet as pq
    import torch

    model = toys.tiny()
    made = toys.trainer(
        tmp_path, model=model, setup=SEARCH, recipe=BY, max_turns=2, dump_dir=tmp_path / "r"
    )
    before = {name: weight.clone() for name, weight in made.model.state_dict().items()}
    made.train()
    made.model.load_state_dict(before)
    rows = pq.read_table(tmp_path / "r" / "rollouts_00000.parquet").to_pylist()
    render, environment = made.player.agent.render, None
    from ascribe_lab.envs.search_qa import SearchQA

    environment = SearchQA()
    answers = {q.text: q.answers[0] for q in environment.questions}
    for row in rows[:6]:
        question = next(text for text in answers if text in row["prompt"])
        answer = toys.tokenizer()(render(f"answer[{answers[question]}]"), add_special_tokens=False)[
            "input_ids"
        ]
        ids = torch.tensor([[*row["prompt_ids"], *answer]])
        with torch.no_grad():
            logits = made.model(ids).logits[0, len(row["prompt_ids"]) - 1 : -1]
            logprobs = torch.log_softmax(logits, -1).gather(1, torch.tensor(answer)[:, None])
            assert row["score"] == pytest.approx(float(logprobs.mean().exp()), rel=1e-3)
            ids = torch.tensor([[*row["prompt_ids"], *row["response_ids"]]])
            logits = made.model(ids).logits[0, len(row["prompt_ids"]) - 1 : -1]
            chances = torch.softmax(logits / made.temperature, -1)
            entropy = -(chances * chances.log()).sum(-1).mean()
        assert row["entropy"] == pytest.approx(float(entropy), rel=1e-3)


def test_a_rollout_function_gives_a_judge_s_scores(tmp_path: Path) -> None:
    def judged(prompts: list[Any], trainer: Any) -> dict[str, list[Any]]:
        rows = toys.play(prompts, trainer)
        random = np.random.default_rng(1)
        rows["turn_step_score"] = [random.random(len(r)).tolist() for r in rows["turn_rewards"]]
        return rows

    made = toys.own_trainer(tmp_path, recipe="judged", rollout_func=judged, dump_dir=tmp_path / "r")
    made.train()
    table = read_table(tmp_path / "r" / "rollouts_00000.parquet")
    assert table.step_score is not None
    assert recipe("judged")(table).terms["step"].credited.any()
    with pytest.raises(ValueError, match="rollout_func returned no turn_step_score"):
        toys.own_trainer(tmp_path, recipe="judged").train()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"recipe": "ccpo"}, "ccpo needs the column agent and without, which TRL does not"),
        ({"recipe": "ibpo"}, "ibpo needs the column corrects, which TRL does not"),
        ({"recipe": "progress", "rollout_func": None}, "progress needs the column score, which"),
        ({"check": "dorp"}, "check: there is no choice 'dorp'; did you mean drop"),
        ({"state": "tol"}, "state: there is no choice 'tol'; did you mean tool"),
        ({"state": "key", "rollout_func": None}, "state='key' needs turn_states"),
    ],
)
def test_a_wrong_configuration_is_refused_before_the_first_rollout(
    wrong: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        toys.own_trainer(tmp_path, **wrong)


def test_ccpo_needs_an_environment_of_a_team(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="ccpo needs the column agent and without"):
        toys.trainer(tmp_path, setup=SEARCH, recipe="ccpo")


def test_malformed_lists_drop_their_groups_and_the_run_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Groups of four: the second of each iteration is malformed in one of its episodes."""

    def careless(prompts: list[Any], trainer: Any) -> dict[str, list[Any]]:
        rows = toys.play(prompts, trainer)
        lists = rows["turn_rewards"]
        rows["turn_step_score"] = [[0.5] * len(each) for each in lists]
        if trainer.state.global_step == 0:
            lists[5] = lists[5][1:]
        else:
            rows["turn_step_score"][6] = ["good"] * len(lists[6])
        return rows

    options: Any = {"recipe": "judged", "rollout_func": careless, "dump_dir": tmp_path / "r"}
    made = toys.own_trainer(tmp_path, args={"max_steps": 2}, **options)
    made.train()
    assert toys.logged(made, "ascribe/dropped_groups") == [1, 1]
    assert toys.logged(made, "ascribe/dropped/bad_turn_rewards") == [1]
    assert toys.logged(made, "ascribe/dropped/bad_turn_step_score") == [1]
    for number in (0, 1):
        table = read_table(tmp_path / "r" / f"rollouts_{number:05d}.parquet")
        assert table.group.used().values.tolist() == [f"{number}/0"]
    assert "episode 0/1/1: turn_rewards is [" in caplog.text
    assert "episode 1/1/2: turn_step_score is ['good'" in caplog.text


@pytest.mark.parametrize(
    ("name", "column", "options"),
    [
        ("gae", "value", {}),
        ("judged", "step_score", {}),
        ("progress", "score", {"layout": "trajectory"}),
    ],
)
def test_what_trl_does_not_give_is_refused_by_name(
    tmp_path: Path, name: str, column: str, options: dict[str, Any]
) -> None:
    with pytest.raises(ValueError, match=f"{name} needs the column {column}, which TRL does not"):
        toys.trainer(tmp_path, recipe=name, **options)


def test_an_environment_that_does_not_know_the_answer_is_refused(tmp_path: Path) -> None:
    textcraft = Setup("textcraft", {}, style="plain", pool="serial")
    made = toys.trainer(tmp_path, setup=textcraft, recipe="progress", max_turns=2)
    with pytest.raises(ValueError, match="does not say what the right answer is"):
        made.train()
