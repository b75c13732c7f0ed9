"""The whole algorithm in one file: its credit is the library's, and its runs can be repeated."""

import ast
import copy
import json
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascribe import StepTable, recipe
from ascribe.steps.table import _name_key
from tests.strategies import step_tables

pytestmark = pytest.mark.engine

torch = pytest.importorskip("torch", reason="needs the extra actor")
pytest.importorskip("transformers", reason="needs the extra actor")

FILE = Path(__file__).parents[2] / "examples" / "bipace_in_one_file.py"
sys.path.insert(0, str(FILE.parent))
RESULTS = Path(__file__).parents[2] / "experiments" / "one_file" / "results"

import bipace_in_one_file as one_file  # noqa: E402

NAMES = ("grpo", "gigpo", "bipace_q", "sbc")
COLUMNS = ("group", "trajectory", "step", "state", "action", "reward")

each_recipe = pytest.mark.parametrize("name", NAMES)


@pytest.fixture(autouse=True)
def one_thread():
    """As the file runs: sums in another order would be other runs."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


# The file.


def test_it_needs_torch_transformers_and_numpy_alone():
    found = set()
    for node in ast.walk(ast.parse(FILE.read_text(encoding="utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        found |= {name.partition(".")[0] for name in names}
    assert found - set(sys.stdlib_module_names) == {"torch", "transformers", "numpy"}


def test_it_has_the_estimators_that_it_names():
    assert tuple(one_file.ESTIMATORS) == NAMES


# The world.


def commands(world):
    """Every command that could help."""
    fetched = (f"get {n} {item}" for item in world.fetched for n in range(1, 9))
    return [*fetched, *world.recipes]


@pytest.mark.parametrize("game", range(8))
def test_five_commands_are_the_shortest_solution(game):
    start = one_file.TextCraft(game, random.Random(0))
    reached, solved_after = {(): start.has}, None
    for depth in range(1, 6):
        after = {}
        for has in reached.values():
            for command in commands(start):
                world = one_file.TextCraft(game, random.Random(0))
                world.has.update(has)
                world.step(command)
                if world.done:
                    solved_after = solved_after or depth
                # More than eight of a thing are never needed.
                elif all(number <= 8 for number in world.has.values()):
                    after[tuple(sorted((+world.has).items()))] = world.has
        reached = after
    assert solved_after == 5


@pytest.mark.parametrize("game", range(8))
def test_the_expert_reaches_the_goal_in_time(game):
    world = one_file.TextCraft(game, random.Random(0))
    used = 0
    while not world.done:
        world.step(world.expert())
        used += 1
    assert used <= 6 < one_file.HORIZON


def test_everything_that_is_said_is_in_the_vocabulary():
    world = one_file.TextCraft(0, random.Random(0))
    wrong = ["get 1 oak planks", "craft 2 stick using 2 oak planks", world.recipes[0], "dance"]
    for command in ("inventory", *wrong, *(world.expert() for _ in range(5))):
        world.step(command)
        for text in (world.prefix, world.seen, world.inventory(), "Before Action nothing"):
            assert one_file.UNKNOWN not in one_file.encode(text), text


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        ("get 2 oak log", "Got 2 oak log"),
        ("get 0 oak log", "Could not find oak log"),
        ("get 1 stick", "Could not find stick"),
        ("get 1 diamond", "Could not find diamond"),
        ("craft 4 oak planks using 1 oak log", "Could not find enough items to craft oak planks"),
        ("craft 3 oak planks using 1 oak log", "Could not find a valid recipe for oak planks"),
        ("inventory", "Inventory: You are not carrying anything."),
        ("craft", "Could not execute"),
        ("nothing", "Could not execute"),
    ],
)
def test_answers_to_commands(command, answer):
    world = one_file.TextCraft(0, random.Random(0))
    assert world._obey(command) == answer


# Credit, against the library.


def clear_radius(steps, fingerprints, radius):
    """This radius, or the next larger one from which every step keeps a distance of 1e-6.

    The library's dot products are in single precision, the file's in double: nearer to the radius
    than about 1e-7, rounding decides who joins a cluster, and either answer is right.
    """

    def labels(slack):
        finer = one_file.clusters(steps, fingerprints, 0.3 * radius + slack, "keep")
        return one_file.clusters(steps, fingerprints, radius + slack), finer

    while labels(-1e-6) != labels(1e-6):
        radius *= 1.01
    return radius


def assert_same_credit(name, steps, fingerprints, radius):
    table = StepTable.from_dicts({key: getattr(row, key) for key in COLUMNS} for row in steps)
    if recipe(name).inputs:
        wanted = recipe(name, radius=radius)(table, fingerprints=fingerprints).advantage
    else:
        wanted = recipe(name)(table).advantage
    got = one_file.ESTIMATORS[name](steps, fingerprints=fingerprints, radius=radius)
    attempts = Counter(row.group for row in steps if row.step == 0)
    several = [attempts[row.group] > 1 for row in steps]  # the file always plays several
    np.testing.assert_allclose(got[several], wanted[several], rtol=0.0, atol=1e-6)
    return wanted


@each_recipe
@given(
    table=step_tables(missing=False, padding=False),
    seed=st.integers(0, 2**32 - 1),
    radius=st.sampled_from((0.003, 0.05, 0.2, 0.6)),
)
def test_credit_on_random_tables(name, table, seed, radius):
    rows = [row | {"action": row["action"] or "wait"} for row in table.to_dicts()]
    rows.sort(key=lambda row: (_name_key(row["group"]), _name_key(row["trajectory"]), row["step"]))
    steps = [one_file.Step(**{key: row[key] for key in COLUMNS}) for row in rows]
    rng = np.random.default_rng(seed)
    directions = {state: rng.standard_normal(8) for state in sorted({row.state for row in steps})}
    vectors = np.array([directions[row.state] for row in steps])
    vectors += rng.choice([0.01, 0.3]) * rng.standard_normal(vectors.shape)
    vectors = vectors.astype(np.float32)
    assert_same_credit(name, steps, vectors, clear_radius(steps, vectors, radius))


@pytest.fixture(scope="module")
def policy():
    """A policy that was cloned too shortly to do anything well."""
    torch.set_num_threads(1)
    return one_file.clone(0, updates=2)


@pytest.fixture(scope="module")
def rollouts(policy):
    """Episodes of the policy, which takes the advice of the expert in 45 % of its steps."""
    generator, rng = torch.Generator().manual_seed(0), random.Random(0)
    with torch.no_grad():
        prefixes = one_file.read_prefixes(policy)

    def choose(rows, worlds):
        with torch.no_grad():
            one_file.act(policy, prefixes, rows, generator)
        for row in rows:
            if rng.random() < 0.45:
                row.action = worlds[row.trajectory].expert()

    return one_file.play(choose, 8, "rollouts")


@pytest.mark.slow
@each_recipe
@pytest.mark.parametrize("radius", [1e-5, 1e-4, one_file.RADIUS, 0.1])
def test_credit_on_its_own_rollouts(name, radius, rollouts):
    fingerprints = np.stack([row.fingerprint for row in rollouts])
    radius = clear_radius(rollouts, fingerprints, radius)
    wanted = assert_same_credit(name, rollouts, fingerprints, radius)
    assert np.count_nonzero(wanted) > len(rollouts) / 2


# Sampling and learning.


@pytest.mark.slow
def test_log_probabilities_of_the_sampler_are_those_of_a_plain_pass(policy):
    """No shared prefix, no cache, no padding: one row at a time."""
    steps, _ = one_file.play_policy(policy, 1, "plain")
    for row in steps[::12]:
        prefix = one_file.encode(one_file.TextCraft(int(row.group), None).prefix)
        ids = torch.tensor([prefix + row.prompt + row.tokens])
        with torch.no_grad():
            logps = policy(ids).logits[0, :-1].log_softmax(-1)
        said = logps[-len(row.tokens) :].gather(1, torch.tensor(row.tokens)[:, None])[:, 0]
        np.testing.assert_allclose(row.logps, said, atol=1e-4)


@pytest.mark.slow
def test_an_action_that_earned_something_becomes_more_likely(policy):
    policy = copy.deepcopy(policy)
    steps = one_file.play_policy(policy, 1, "climb")[0][:24]
    advantage = np.where(np.arange(len(steps)) % 2, 1.0, -1.0)
    one_file.climb(policy, torch.optim.Adam(policy.parameters(), lr=1e-3), steps, advantage)
    gained = []
    for row in steps:
        prefix = one_file.encode(one_file.TextCraft(int(row.group), None).prefix)
        with torch.no_grad():
            logps = policy(torch.tensor([prefix + row.prompt + row.tokens])).logits[0, :-1]
        logps = logps.log_softmax(-1)[-len(row.tokens) :]
        said = logps.gather(1, torch.tensor(row.tokens)[:, None])
        gained.append(float(said.sum()) - sum(row.logps))
    assert np.mean(np.array(gained) * advantage) > 0


@pytest.mark.slow
def test_two_runs_with_one_seed_are_identical_and_another_seed_differs(monkeypatch):
    # The policy is far too young to earn a reward, so every step is paid something.
    made_up = lambda steps, **_: np.linspace(-1.0, 1.0, len(steps))  # noqa: E731
    monkeypatch.setitem(one_file.ESTIMATORS, "made up", made_up)
    monkeypatch.setattr(one_file, "HORIZON", 2)
    monkeypatch.setattr(one_file, "GAMES", one_file.GAMES[:2])

    def run(seed):
        policy = one_file.clone(seed, updates=2)
        start = copy.deepcopy(policy.state_dict())
        lines = list(one_file.train(policy, "made up", seed, iterations=2, held_out=1, every=1))
        return lines, start, policy.state_dict()

    first, second, other = run(0), run(0), run(1)
    assert first[0] == second[0]
    for one, two in zip(first[1:], second[1:], strict=True):
        assert all(torch.equal(one[key], two[key]) for key in one)
    changed = [not torch.equal(first[1][key], first[2][key]) for key in first[1]]
    assert all(changed)
    assert any(not torch.equal(first[2][key], other[2][key]) for key in first[2])
    assert [line["iteration"] for line in first[0]] == [0, 1, 2]


@pytest.mark.slow
def test_the_command_writes_the_curve(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(one_file, "HORIZON", 2)
    start = one_file.clone(5, updates=0)
    monkeypatch.setattr(one_file, "clone", lambda seed: start if seed == 5 else None)
    out = tmp_path / "curve.jsonl"
    command = ["bipace_in_one_file.py", "--recipe", "sbc", "--seed", "5", "--iterations", "1"]
    monkeypatch.setattr(sys, "argv", [*command, "--radius", "0.01", "--out", str(out)])
    one_file.main()
    assert out.read_text() == capsys.readouterr().out
    assert len(out.read_text().splitlines()) == 2


# The benchmark and its picture.

ROOT = FILE.parents[1]
METRICS = {f"{when}_{what}" for when in ("start", "end") for what in ("success", "low", "high")}


def figures_of(lines):
    figures = [json.loads(line) for line in lines]
    assert {figure["bench"] for figure in figures} == {"one_file"}
    assert {figure["metric"] for figure in figures} == METRICS | {"iteration_seconds"}
    return {(figure["case"].partition(",")[0], figure["metric"]): figure for figure in figures}


@pytest.mark.slow
def test_a_quick_run_prints_figures_and_nothing_else(tmp_path):
    out = tmp_path / "one_file.jsonl"
    command = [sys.executable, "-m", "experiments.one_file.one_file", "--quick", "--out", str(out)]
    run = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False
    )
    assert run.returncode == 0, run.stderr
    assert out.read_text().splitlines()[1:] == run.stdout.splitlines()
    assert len(figures_of(run.stdout.splitlines())) == 14
    assert len((tmp_path / "one_file" / "curve.jsonl").read_text().splitlines()) == 8


def test_committed_figures_follow_from_the_committed_curves():
    header, *lines = (RESULTS / "one_file.jsonl").read_text().splitlines()
    assert json.loads(header)["quick"] is False
    figures = figures_of(lines)
    curve = (RESULTS / "one_file" / "curve.jsonl").read_text().splitlines()
    curve = [json.loads(line) for line in curve]
    last = max(line["iteration"] for line in curve)
    for name in ("grpo", "gigpo"):
        for when, iteration in (("start", 0), ("end", last)):
            shares = {
                line["seed"]: line["held_out_success"]
                for line in curve
                if line["recipe"] == name and line["iteration"] == iteration
            }
            assert len(shares) == 3
            wanted = sum(shares.values()) / 3
            assert figures[name, f"{when}_success"]["value"] == pytest.approx(wanted, abs=1e-3)


def test_the_page_counts_the_runs_that_doubled():
    curve = (RESULTS / "one_file" / "curve.jsonl").read_text()
    held_out: dict[tuple[str, int], list[float]] = {}
    for line in map(json.loads, curve.splitlines()):
        if "held_out_success" in line:
            held_out.setdefault((line["recipe"], line["seed"]), []).append(line["held_out_success"])
    for seed in range(3):
        assert held_out["grpo", seed][0] == held_out["gigpo", seed][0], "runs are not paired"
    short = [run for run, shares in held_out.items() if shares[-1] < 2 * shares[0]]
    assert (len(held_out), short) == (6, [("grpo", 1)])
    page = (RESULTS.parent / "report.md").read_text(encoding="utf-8")
    assert "In five of the six runs" in page
    assert "in one (`grpo`, seed 1) it rose" in page
