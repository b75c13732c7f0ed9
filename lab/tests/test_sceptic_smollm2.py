"""The figures of SmolLM2's runs follow from the committed episodes, and the goals are disjoint."""

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("minecraft_data")

from benchmarks.common import read_lines
from experiments.sceptic import sceptic_smollm2 as sceptic

RESULTS = Path(sceptic.FOLDER) / "results"


def test_goals_of_warm_up_training_and_evaluation_are_disjoint() -> None:
    parts = sceptic.parts()
    assert {name: len(part) for name, part in parts.items()} == {
        "unseen": 120,
        "train": 40,
        "warm": 59,
    }
    assert len({goal for part in parts.values() for goal in part}) == 219


def test_the_expert_wins_in_the_turns_of_training() -> None:
    environment = sceptic.ShortCraft(part="unseen", expert=True)
    most = sceptic.Design().changes["rollout.max_turns"]
    for task in range(environment.tasks):
        text, info = environment.reset(seed=task, options={"task": task})
        assert text.count("craft ") <= sceptic.MOST_RECIPES + sceptic.OTHERS
        for _ in range(most):
            _, reward, ended, _, info = environment.step(info["expert_action"])
            if ended:
                break
        assert reward == 1.0


def made_up() -> tuple[dict[str, sceptic.Played], list[dict[str, object]]]:
    """Two goals of two episodes; seed 3 has no finished second run."""
    won, lost, failed = (True, 2, 2, 2), (False, 4, 4, 3), (False, 4, 1, 0)
    played = {
        "start": {"a": [won, lost], "b": [failed, failed]},
        "grpo-1": {"a": [won, won], "b": [failed, failed]},
        "sbc-1": {"a": [won, won], "b": [won, failed]},
        "grpo-2": {"a": [won, lost], "b": [lost, failed]},
        "sbc-2": {"a": [won, won], "b": [won, won]},
        "grpo-3": {"a": [won, won], "b": [won, won]},
    }
    costs = {"iterations": 4, "success": 0.5, "advantage_rms": 1.0, "wall_seconds": 9.0}
    runs = [
        {"arm": arm, "seed": seed, "cpu_seconds": None if seed == 2 else 8.0} | costs
        for seed in (1, 2, 3)
        for arm in ("grpo", "sbc")
    ]
    return played, runs


def test_figures_by_hand() -> None:
    figures = {(case, metric): values for case, metric, values, _ in sceptic.summary(*made_up())}
    assert figures["start", "success"] == [0.25]
    assert figures["start", "well_formed"] == [8 / 14]
    assert figures["start", "carried_out"] == [5 / 14]
    assert figures["start", "success_if_formed"] == [0.5]
    assert figures["grpo, seed 2", "success_if_formed"] == [1 / 3]
    assert figures["grpo, gain", "success"][0] == pytest.approx((0.25 + 0.0) / 2)
    mean, low, high = figures["sbc minus grpo", "success"]  # .25 and .75
    assert mean == pytest.approx(0.5)
    assert (low, high) == (-1.0, 1.0)  # 12.71 * .25 is beyond what is possible
    assert figures["sbc minus grpo, over goals", "success"][0] == pytest.approx(0.5)
    assert ("grpo, seed 1", "cpu_seconds") in figures
    assert ("grpo, seed 2", "cpu_seconds") not in figures
    assert figures["grpo, seed 3: its pair is not finished", "iterations"] == [4]
    assert figures["sbc, seed 3: not finished", "iterations"] == [4]
    assert ("grpo, seed 3", "success") not in figures


def test_finished_runs_are_restored_from_results(tmp_path: Path) -> None:
    played, _ = made_up()
    results, work = tmp_path / "results", tmp_path / "work"
    results.mkdir()
    names = [name for name in played if not name.endswith("3")]
    goals = [{"goal": goal} | {name: played[name][goal] for name in names} for goal in "ab"]
    runs, curve = [], []
    for name in names[1:]:
        arm, _, seed = name.partition("-")
        run = {"arm": arm, "seed": int(seed)}
        curve += [run | {"iteration": n} | dict.fromkeys(sceptic.CURVE, n / 4) for n in range(3)]
        costs = {"cpu_seconds": 8.0, "start": "abc", "wall_seconds": 9.0}
        runs.append(run | {"iterations": 3, "success": 0.25, "advantage_rms": 0.25} | costs)
    for name, lines in (("goals", goals), ("runs", runs), ("curve", curve)):
        (results / f"{name}.jsonl").write_text("".join(f"{json.dumps(x)}\n" for x in lines))
    design = sceptic.Design(seeds=(1, 2))
    sceptic.restore(results, work)
    found = sceptic.collect(design, work, ("grpo", "sbc"))
    as_read = json.loads(json.dumps({name: played[name] for name in names}))
    assert found[0] == as_read
    assert sorted(map(json.dumps, found[2])) == sorted(map(json.dumps, curve))
    assert found[1] == sorted(runs, key=lambda run: run["seed"])
    (tmp_path / "model.safetensors").write_bytes(b"another start")
    with pytest.raises(SystemExit, match="not the start"):
        sceptic.finish(design, tmp_path, work / "grpo-3", "grpo", 3)


def test_figures_are_those_of_the_committed_episodes() -> None:
    path = RESULTS / "sceptic_smollm2.jsonl"
    if not path.exists():
        pytest.skip("the runs are not made yet")
    _, *written = read_lines(path)
    lines = read_lines(RESULTS / "sceptic_smollm2" / "goals.jsonl")
    played = {run: {line["goal"]: line[run] for line in lines} for run in lines[0] if run != "goal"}
    runs = read_lines(RESULTS / "sceptic_smollm2" / "runs.jsonl")
    curve = read_lines(RESULTS / "sceptic_smollm2" / "curve.jsonl")
    for run in runs:
        own = [line for line in curve if all(line[key] == run[key] for key in ("arm", "seed"))]
        assert len(own) == run["iterations"]
        if f"{run['arm']}-{run['seed']}" in played:
            mean = sum(line["success"] for line in own) / len(own)
            assert mean == pytest.approx(run["success"])
    values = [
        (case, value) for case, _, values, _ in sceptic.summary(played, runs) for value in values
    ]
    assert [(line["case"], line["value"]) for line in written] == [
        (case, float(f"{value:.4g}")) for case, value in values
    ], json.dumps(values)
