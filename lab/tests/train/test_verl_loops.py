"""Stock verl with credit for turns: its ToolAgentLoop, and users' agent loops, in one real run."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ascribe.engines.inputs import task_name
from ascribe.estimators import recipe
from ascribe.estimators.assign import assign
from ascribe.steps.files import read
from lab.tests.train import verl_toys as toys
from tests.engines.by_hand import against_memory

pytestmark = [pytest.mark.engine, pytest.mark.slow, toys.NEEDS_VERL]

EXAMPLE = Path(__file__).parents[3] / "examples" / "verl_rooms"
RECIPES = ("grpo", "gigpo", "sbc")
AGENTS = "actor_rollout_ref.rollout.agent.agent_loop_config_path"
KEYS = {
    "actor_rollout_ref.model.use_remove_padding": True,
    "actor_rollout_ref.rollout.multi_turn.max_assistant_turns": 3,
    AGENTS: Path(__file__).parent / "verl_agents.yaml",
    "ascribe.recipe": "sbc",
    "+ascribe.fingerprints": -1,
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three steps: verl's ToolAgentLoop, the example's loop, and one that returns several rows."""
    folder = tmp_path_factory.mktemp("rooms")
    toys.run_rooms(
        folder,
        KEYS,
        AGENT="tool_agent rooms rows",
        VERL_USE_EXTERNAL_MODULES="lab.tests.train.verl_loop_spy",
        SPY=str(folder / "spied"),
    )
    return folder


def rows(run: Path, step: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((run / "spied" / f"rows_{step}.json").read_text())
    return [row for row in found if not row["padding"]]


def update(run: Path, step: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "spied" / f"update_{step}.json").read_text())
    return found


def dumped(run: Path, name: str, step: int) -> Any:
    return read(run / "spied" / name / f"rollouts_{step - 1:05d}.parquet")


def episode(row: dict[str, Any]) -> str:
    """The name of a row's trajectory."""
    uid, session, _ = row["key"].rsplit("_", 2)
    return f"{uid}/{session}"


def turns(row: dict[str, Any]) -> list[tuple[int, int]]:
    """Where the runs of ones begin and end."""
    edges = np.flatnonzero(np.diff(row["response_mask"], prepend=0, append=0))
    return list(map(tuple, edges.reshape(-1, 2).tolist()))


@pytest.mark.parametrize("step", [1, 2, 3])
def test_grpo_is_verls_own(run: Path, step: int) -> None:
    noted = rows(run, step)
    assert len(noted) == (56 if step == 3 else 32)
    for row in noted:
        np.testing.assert_allclose(row["grpo"], row["verl"], atol=1e-6)
    if step != 3:  # whose groups may have equal returns
        assert any(np.any(row["verl"]) for row in noted)


@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize("name", RECIPES)
def test_credit_of_the_dump_is_on_the_tokens_of_each_turn(run: Path, name: str, step: int) -> None:
    steps = dumped(run, name, step)
    advantage = assign(steps.table, recipe(name)).credit.advantage
    np.testing.assert_allclose(steps.carried["trained_advantage"], advantage, atol=1e-6)
    assert np.ptp(advantage) > 0
    place = dict(
        zip(
            zip(steps.table.trajectory.texts(), steps.table.step, strict=True),
            advantage,
            strict=True,
        )
    )
    noted = rows(run, step)
    assert len(place) == sum(len(turns(row)) for row in noted) > 1.5 * len(noted)
    for row in noted:
        tokens = np.zeros(len(row["responses"]))
        for turn, (start, end) in enumerate(turns(row)):
            tokens[start:end] = place[episode(row), turn]
        np.testing.assert_allclose(row[name], tokens, atol=1e-6)
        # Nothing beside the spans of credited steps, and all of these.
        assert np.array_equal(np.array(row[name]) != 0, tokens != 0)


def test_states_are_tool_results_or_keys_of_the_loop(run: Path) -> None:
    first, second = dumped(run, "gigpo", 1).table, dumped(run, "gigpo", 2).table
    later = {state for state, step in zip(first.state.texts(), first.step, strict=True) if step}
    assert later <= {f"You are in room {room}." for room in range(10)}
    assert later
    given = {episode(row): row for row in rows(run, 2)}
    for name, step, state, reward in zip(
        second.trajectory.texts(), second.step, second.state.texts(), second.reward, strict=True
    ):
        assert state == given[name]["turn_states"][step]
        assert reward == pytest.approx(given[name]["turn_rewards"][step])
    assert set(first.group.texts()) == {row["key"].split("_")[0] for row in rows(run, 1)}


def test_rewards_of_tools_are_those_of_their_turns(run: Path) -> None:
    """By hand, from the text: the result that stands behind a turn's call says what it earned."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(run / "model")
    table = dumped(run, "gigpo", 1).table
    places = zip(table.trajectory.texts(), table.step, strict=True)
    found = dict(zip(places, table.reward, strict=True))
    assert len({turn for (_, turn), reward in found.items() if reward}) > 1
    for row in rows(run, 1):
        starts = [start for start, _ in turns(row)]
        texts = [
            tokenizer.decode(row["responses"][start:end])
            for start, end in zip(starts, [*starts[1:], None], strict=True)
        ]
        by_hand = [0.25 * len(re.findall("You are in room 2", text)) for text in texts]
        by_hand[-1] += sum(row["rm_scores"]) - sum(by_hand)
        assert [found[episode(row), turn] for turn in range(len(starts))] == by_hand


def test_an_episode_that_ran_out_of_turns_is_truncated(run: Path) -> None:
    """By hand, from the text: its last turn is a call that verl can read."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(run / "model")
    table = dumped(run, "gigpo", 1).table
    cut = dict(zip(table.trajectory.texts(), table.truncated, strict=True))  # of the last turn
    for row in rows(run, 1):
        last = tokenizer.decode(row["responses"][turns(row)[-1][0] :])
        calls = any(map(is_call, re.findall("<tool_call>(.*?)</tool_call>", last, re.DOTALL)))
        assert cut[episode(row)] == (calls or not last.endswith(tokenizer.eos_token))
        assert not calls or len(turns(row)) == 3
    assert any(cut.values())
    assert not all(cut.values())


def is_call(text: str) -> bool:
    try:
        return {"name", "arguments"} <= json.loads(text).keys()
    except (AttributeError, ValueError):
        return False


def test_several_rows_of_an_episode_are_one_update(run: Path) -> None:
    """The 32 episodes of a minibatch, whatever number of rows they have; verl counts 32 rows."""
    found = update(run, 3)
    assert found["rows"] == found["minibatch"] >= 56
    assert update(run, 1)["minibatch"] == update(run, 1)["rows"] == 32
    scores = {episode(row): sum(row["rm_scores"]) for row in rows(run, 3)}
    assert len(scores) == found["ascribe/episodes"] == 32
    assert found["ascribe/return"] == pytest.approx(np.mean(list(scores.values())), abs=1e-6)
    said = (run / "log.txt").read_text(errors="replace")
    assert len(re.findall(r"ascribe/return:[-.\d]+", said)) == 3


def test_fingerprints_are_those_of_each_turn(run: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(run / "model", dtype=torch.float32).eval()
    seen: list[Any] = []
    model.model.layers[-1].register_forward_hook(
        lambda _module, _inputs, output: seen.append(
            output[0][0] if isinstance(output, tuple) else output[0]
        )
    )
    for row in rows(run, 1)[:8]:
        with torch.no_grad():
            model(torch.tensor([row["prompts"] + row["responses"]]))
        places = [len(row["prompts"]) + start - 1 for start, _ in turns(row)]
        wanted = torch.nn.functional.normalize(seen[-1][places], dim=-1)
        vectors = torch.tensor(row["fingerprint"]).reshape(len(places), -1)
        assert (vectors * wanted).sum(dim=-1).min() > 0.999  # verl computes in half precision
    steps = read(run / "steps" / "rollouts_00000.parquet")
    assert steps.table.fingerprint is not None
    np.testing.assert_allclose(
        steps.carried["trained_advantage"],
        assign(steps.table, recipe("sbc", scale="equal")).credit.advantage,  # as trainers have it
        atol=1e-6,
    )


@pytest.mark.parametrize("step", [1, 2])
def test_fingerprints_that_stay_in_the_queue_give_the_same_bits(run: Path, step: int) -> None:
    noted = rows(run, step)
    assert any(np.any(row["tasks"]) for row in noted)
    assert [row["tasks"] for row in noted] == [row["sbc"] for row in noted]


def test_rows_of_a_session_have_agents_and_an_order(run: Path) -> None:
    """By hand: the turns of the scout come right after the first turn of the main agent."""
    table = dumped(run, "gigpo", 3).table
    for name in set(table.trajectory.texts()):
        played = [row for row in rows(run, 3) if episode(row) == name]
        played.sort(key=lambda row: int(row["key"].rsplit("_", 1)[1]))
        main = [("main", -1)] * len(turns(played[0]))
        if len(played) == 3:
            main[1:1] = [("scout", 0)] * len(turns(played[1]))
        if len(played) > 1:
            main += [("main", -1)] * len(turns(played[-1]))
        here = np.flatnonzero(np.array(table.trajectory.texts()) == name)
        here = here[np.argsort(table.step[here])]
        assert table.parent is not None
        parents = [max(parent, -1) for parent in table.parent[here].tolist()]
        agents = [table.agent.texts()[row] for row in here]
        assert list(zip(agents, parents, strict=True)) == main
        scores = {sum(row["rm_scores"]) for row in played}
        assert table.reward[here].sum() in scores
        assert not table.reward[here[:-1]].any()


def test_one_rollout_is_compared_with_those_of_earlier_iterations(run: Path) -> None:
    """The eight sessions of each of four tasks, one after another."""
    steps = [dumped(run, "memory", number + 1) for number in range(8)]
    tables = [each.table for each in steps]
    names = {task_name(["rooms", index]) for index in range(4)}
    assert all({*table.task.texts()} == names for table in tables)
    for number, by_hand in enumerate(against_memory(tables, 0.8, 0.95)):
        trained = steps[number].carried["trained_advantage"]
        np.testing.assert_allclose(trained, by_hand, atol=1e-12)
        assert len(tables[number].group.values) == 4
        assert by_hand.any() == (number > 0)


@pytest.mark.nightly
def test_one_rollout_per_task_goes_on_after_a_checkpoint(tmp_path: Path) -> None:
    """Two steps over the same four tasks, and a third in a run that resumes."""
    keys = {
        "data.train_max_samples": 4,
        "actor_rollout_ref.rollout.n": 1,
        "ascribe.recipe": "returns",
        "+ascribe.memory": 0.8,
        "trainer.default_local_dir": tmp_path / "checkpoints",
        "trainer.resume_mode": "auto",
    }
    for last, saved in ((2, 2), (3, -1)):
        own = {"trainer.total_training_steps": last, "trainer.save_freq": saved}
        toys.run_rooms(tmp_path, keys | own)
    steps = [read(tmp_path / "steps" / f"rollouts_{number:05d}.parquet") for number in range(3)]
    tables = [each.table for each in steps]
    for number, by_hand in enumerate(against_memory(tables, 0.8, 0.95)):
        trained = steps[number].carried["trained_advantage"]
        np.testing.assert_allclose(trained, by_hand, atol=1e-12)
        assert len(tables[number].trajectory.values) == len(tables[number].group.values) == 4
        assert by_hand.any() == (number > 0)


def test_the_loop_of_the_example_is_short() -> None:
    assert len((EXAMPLE / "loop.py").read_text().splitlines()) <= 40
