"""The worlds, true values and figures of ``experiments.sceptic.sceptic``."""

import copy
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

ROOT = Path(__file__).parents[2]

from ascribe import recipe  # noqa: E402
from benchmarks.common import read_lines  # noqa: E402
from experiments import learning_loop as loop  # noqa: E402
from experiments.sceptic import sceptic, sceptic_gradients  # noqa: E402
from experiments.sceptic import sceptic_page as page  # noqa: E402


@pytest.mark.parametrize("name", loop.UNSEEN)
def test_the_expert_wins(name: str) -> None:
    """In nearly every task: the page of results may lack the product that is wanted."""
    world, won = loop.UNSEEN[name], 0
    for task in world.unseen[:20]:
        one = world(task, "expert")
        for _ in range(world.horizon):
            if not one.over:
                one.step(one.demonstrate(random.Random(0), 0.0))
        won += one.won
    assert won >= 17


@pytest.mark.parametrize("name", [n for n in loop.UNSEEN if n != "sokoban, two boxes"])
def test_tasks_are_apart(name: str) -> None:
    world = loop.UNSEEN[name]
    parts = [set(world.tasks), set(world.unseen), set(world.shown_tasks), set(range(32))]
    if name == "webshop":  # numbers 0 to 31 are those of rooms
        parts.pop()
    assert sum(map(len, parts)) == len(set.union(*parts))


@pytest.fixture(scope="module")
def policy() -> object:
    return loop.clone("sokoban, unseen rooms", loop.Start(0.2, 5), 1)


def test_words_read_once_are_those_of_the_whole_policy(policy: object) -> None:
    world, tasks = loop.UnseenRooms, (1000, 1001)
    steps, _ = loop.play_policy(policy, world, tasks, 3, "words")
    others = copy.deepcopy(steps)
    loop.act(policy, world, others, np.full((len(steps), 1), 0.5, np.float32))
    for step, other in zip(steps, others, strict=True):
        assert np.allclose(step.fingerprint, other.fingerprint, atol=1e-5)
    logps, _ = loop.token_logps(policy, steps)
    assert np.allclose([step.logps[0] for step in steps], logps[:, 0].detach(), atol=1e-5)


def test_true_values_are_what_the_policy_earns(policy: object) -> None:
    world, task, episodes = loop.UnseenRooms, 1000, 4000
    steps, _ = loop.play_policy(policy, world, (task,), episodes, "values")
    returns = np.zeros(episodes)
    for step in steps:
        returns[int(step.trajectory.partition("/")[2])] += step.reward
    value = loop.TrueValues(policy, world).values(steps[:1])[0]
    assert abs(returns.mean() - value) < 4 * returns.std() / episodes**0.5


def test_true_advantages_have_mean_zero_in_every_state(policy: object) -> None:
    """Over the policy's own actions."""
    world, graph = loop.UnseenRooms, loop.UnseenRooms.graph_of(1000)
    values = loop.TrueValues(policy, world).of_task(1000, loop.FirstWords(policy))
    after, reward, over = graph.whole
    logps = loop.FirstWords(policy).logps_of(graph.prompts).astype(np.float64)
    chance = np.exp(logps[:, [world.tokens.ids[word] for word in world.words]])
    chance = np.column_stack([chance, 1 - chance.sum(1)])
    for turn in (0, 7, world.horizon - 1):
        q = reward + np.where(over, 0.0, values[turn + 1][after])
        assert np.allclose((chance * (q - values[turn][:, None])).sum(1), 0.0, atol=1e-9)


def test_without_a_key_arms_are_others_where_nothing_recurs(policy: object) -> None:
    """Up to a factor, which the equal size of all advantages removes."""
    steps, _ = loop.play_policy(policy, loop.UnseenRooms, (1000, 1001), 4, "clock")
    for number, step in enumerate(steps):
        step.state, step.reward = f"{number} {step.state}", float(number % 7)
    table = loop.step_table(steps)

    def credit(name: str, **how: object) -> np.ndarray:
        found = np.asarray(recipe(name, **how)(table).advantage)
        return found / loop.rms(found)

    sbc = credit("sbc", states="exact", gamma=0.9)
    assert np.allclose(sbc, credit("returns", gamma=0.9), atol=1e-9)
    assert np.allclose(credit("gigpo"), credit("grpo"), atol=1e-9)


def test_gradients_are_those_of_the_update(policy: object) -> None:
    steps, _ = loop.play_policy(policy, loop.UnseenRooms, (1000,), 2, "gradient")
    advantage = np.linspace(-1, 1, len(steps))
    (found,) = sceptic_gradients.gradients(policy, steps, [advantage])
    moved = copy.deepcopy(policy)
    loop.update(moved, torch.optim.SGD(moved.parameters(), lr=1.0), steps, advantage)
    pairs = zip(moved.parameters(), policy.parameters(), strict=True)
    step = torch.cat([(new - old).detach().flatten() for new, old in pairs]).numpy()
    cosine = step @ found / np.linalg.norm(step) / np.linalg.norm(found)
    assert cosine > 0.9999  # the update clips the length


def lines(design: sceptic.Design) -> list[dict[str, object]]:
    """Runs as they are kept: the higher the rate, the better."""
    made = []
    for unit in sceptic.first_round(design, []):
        for arm, gamma, rate, iterations in unit.runs:
            line = {"world": unit.world, "seed": unit.seed, "arm": arm, "gamma": gamma}
            made.append(line | {"rate": rate, "iterations": iterations, "trained": rate + gamma})
    return made


def test_the_best_settings_are_run_on_and_edges_are_passed() -> None:
    design = replace(sceptic.FULL, worlds=("webshop",), arms=("grpo", "sbc"))
    first = lines(design)
    second = sceptic.second_round(design, first)
    kept = {(arm, gamma, rate) for unit in second for arm, gamma, rate, _ in unit.runs}
    assert {rate for arm, _, rate in kept if arm == "grpo"} == set(design.rates[1:])
    assert {gamma for arm, gamma, _ in kept if arm == "sbc"} == {1.0}

    def beyond(score: object) -> set[tuple[str, float, float]]:
        """The settings that both extensions add, run as the stages run them, and then again."""
        done, sets = list(first), []
        for _ in range(2):
            for extensions in range(sceptic.EXTENSIONS + 1):
                units = sceptic.second_round(design, done, extensions)
                runs = {(unit.seed, *run) for unit in units for run in unit.runs}
                sets.append({run[1:4] for run in runs})
                had = {(x["seed"], x["arm"], x["gamma"], x["rate"], x["iterations"]) for x in done}
                for seed, arm, gamma, rate, iterations in runs - had:
                    line = {"world": "webshop", "seed": seed, "arm": arm, "gamma": gamma}
                    line |= {"rate": rate, "iterations": iterations}
                    done.append(line | {"trained": score(gamma, rate)})
        assert sets[3:] == [sets[0], sets[1], sets[2]]  # a restart finds the same ones
        return sets[2] - sets[0]

    assert beyond(lambda gamma, rate: rate + gamma) == {
        *(("grpo", 1.0, rate) for rate in (0.008, 0.016)),
        *(("sbc", 1.0, rate) for rate in (0.008, 0.016)),
    }
    first = [line | {"trained": 1 - line["rate"] - line["gamma"]} for line in first]
    assert beyond(lambda gamma, rate: 1 - rate - gamma) == {
        *(("grpo", 1.0, rate) for rate in (1.25e-4, 6.25e-5)),
        *(("sbc", 0.9, 1.25e-4), ("sbc", 0.8, 2.5e-4)),
        *(("sbc", 0.8, 1.25e-4), ("sbc", 0.8, 5e-4), ("sbc", 0.6, 2.5e-4)),
    }


def test_a_setting_that_is_finished_in_part_is_not_chosen() -> None:
    design = replace(sceptic.FULL, worlds=("webshop",), arms=("grpo",))
    whole = [line | {"iterations": 30} for line in lines(design)]
    assert not sceptic.tuned(design, whole)


def test_task_means_are_those_of_other_rows() -> None:
    task, values = np.array([0, 0, 0, 1, 2]), np.array([1.0, 2.0, 6.0, 4.0, 8.0])
    among = np.array([True, True, False, False, True])
    found = sceptic.task_means(task, values, among)
    assert found.tolist() == [1.5, 1.5, 1.5, pytest.approx(11 / 3), 8.0]


def test_rooms_of_evaluations_are_unlike_those_of_training() -> None:
    def laid_out(task: int) -> tuple[object, object]:
        room = loop.UnseenRooms.room(task).room
        return frozenset(room.floor), frozenset(room.targets)

    world = loop.UnseenRooms
    others = {laid_out(task) for task in (*world.tasks, *world.shown_tasks)}
    unseen = {laid_out(task) for task in world.unseen}
    assert len(unseen) == len(world.unseen) == 64
    assert not unseen & others


def test_direction_and_noise_of_known_gradients() -> None:
    """From gradients of one weight more than is needed: both arms and the truth are known."""
    rng, batches = np.random.default_rng(0), 4000
    true, ours = np.array([1.0, 0.0, 0.0]), np.array([1.0, 1.0, 0.0])
    drawn = {
        "oracle": true + rng.normal(size=(batches, 3)),
        "returns": ours + 2 * rng.normal(size=(batches, 3)),
    }
    of_batches = (dict(zip(drawn, both, strict=True)) for both in zip(*drawn.values(), strict=True))
    piece = sceptic_gradients.products(of_batches)
    pieces = [dict.fromkeys(sceptic_gradients.STAGES, piece)] * 3
    found = sceptic_gradients.measured(pieces, "start", "returns")
    assert found["direction"] == pytest.approx(0.5**0.5, abs=0.05)
    assert found["noise"] == pytest.approx(12 / 2, rel=0.1)
    whole, low, high = sceptic_gradients.jackknife(pieces, "returns", "noise")
    assert whole == low == high == pytest.approx(found["noise"])


def reported(report: Callable[..., None], *given: object) -> list[dict[str, object]]:
    """The figures that a benchmark reports, as they are written."""
    emitted: list[dict[str, object]] = []

    class Kept:
        def emit(self, case: str, metric: str, value: float, *_: object) -> None:
            emitted.append({"case": case, "metric": metric, "value": float(f"{value:.4g}")})

        def emit_interval(self, case: str, metric: str, found: tuple, *_: object) -> None:
            for end, value in zip(("", "_low", "_high"), found, strict=True):
                self.emit(case, metric + end, value)

    report(Kept(), *given)
    return emitted


def made_up(ahead: float) -> list[dict[str, object]]:
    """Curves in which ``sbc`` is ahead of ``returns``, and ``oracle`` of all."""
    rng, design, made = np.random.default_rng(0), sceptic.FULL, []
    above = {"grpo": -0.1, "sbc": ahead, "oracle": 0.2}
    for world in design.worlds:
        for arm in design.arms_in(world):
            for seed in (0, *design.tuning_seeds, *design.seeds):
                line = {"world": world, "arm": arm, "gamma": 1.0, "rate": 1e-3, "seed": seed}
                line |= {"iterations": design.length(world), "trained": 0.5, "cpu_seconds": 1.0}
                if seed == 0:  # the first round
                    line |= {"seed": design.tuning_seeds[0], "iterations": design.first}
                noise = 0.01 * rng.normal(size=6)
                line["held_out"] = (0.5 + above.get(arm, 0.0) + noise).tolist()
                made.append(line)
    return made


@pytest.mark.parametrize(
    ("ahead", "said"),
    [(0.05, "learned faster"), (-0.05, "learned more slowly"), (0.0, "no difference was found")],
)
def test_the_page_says_what_came_out(ahead: float, said: str) -> None:
    figures: dict[str, dict[str, float]] = {}
    for line in reported(sceptic.report, sceptic.FULL, made_up(ahead)):
        figures.setdefault(line["case"], {})[line["metric"]] = line["value"]
    sentence = page.primary(figures, "webshop")
    assert said in sentence
    assert "+0.0" in sentence or "-0.0" in sentence
    assert ", p " in sentence
    assert page.paragraph(figures).count("\n- *") == len(sceptic.FULL.worlds)
    assert said in page.opening(figures) or not ahead
    assert "TextCraft" not in page.opening(figures)
    share = figures["webshop/sbc"]["share"]
    assert share == pytest.approx((0.1 + ahead) / 0.3, abs=0.02)
    assert f"came {100 * share:.0f} % (" in sentence
    assert f", {100 * share:.0f} % |" in page.table(figures)
    assert ("`sbc` was ahead of `gigpo` in" in page.ahead(figures)) == (ahead > 0)


def test_runs_that_begin_late() -> None:
    ramp = np.linspace(0, 1, 6).tolist()
    late = np.array([0, 2, 8, 14, 20, 26]) / 30
    assert sceptic.delayed(30, {"held_out": ramp}) == pytest.approx(sceptic.auc({"held_out": late}))


def test_added_runs_are_compared_and_choose_nothing() -> None:
    curves = made_up(0.05)
    added = [
        line | {"rate": 5e-4, "held_out": [each + 0.03 for each in line["held_out"]]}
        for line in curves
        if (line["world"], line["arm"]) == ("sokoban, unseen rooms", "oracle")
        and line["seed"] in sceptic.FULL.seeds
    ]
    alone, both = (
        {
            (line["case"], line["metric"]): line["value"]
            for line in reported(sceptic.report, sceptic.FULL, some)
        }
        for some in (curves, curves + added)
    )
    new = {case for case in both if case not in alone}
    assert {case for case, _ in new} == {"sokoban, unseen rooms/sbc minus oracle, 1, 0.0005"}
    plain = alone["sokoban, unseen rooms/oracle minus sbc", "difference"]
    assert both["sokoban, unseen rooms/sbc minus oracle, 1, 0.0005", "difference"] == (
        pytest.approx(-plain - 0.03, abs=1e-3)
    )
    changed = {case for case in alone if alone[case] != both[case]}
    assert {case for case, _ in changed} == {"runs"}


def contrast(difference: float, low: float, high: float, p: float) -> dict[str, float]:
    """A contrast as it is reported, with p as its corrected p."""
    ends = {"difference": difference, "difference_low": low, "difference_high": high}
    return ends | {"p": p, "holm": p}


LEVEL = contrast(0.001, -0.008, 0.009, 0.8)


@pytest.mark.parametrize(
    ("world", "case", "said"),
    [
        ("sokoban, clock", LEVEL, "`sbc` is level with tuned `returns`: +0.001"),
        ("sokoban, clock", LEVEL | {"difference_high": 0.02}, "is level with tuned `returns`, or"),
        ("sokoban, clock", LEVEL | {"difference_low": -0.02}, "differences above 0.020 are ruled"),
        ("webshop", contrast(0.01, 0.001, 0.019, 0.06), "no difference was found"),
        ("webshop", contrast(-0.01, -0.02, 0.001, 0.04), "learned more slowly than tuned"),
    ],
)
def test_interval_and_p_decide_together(world: str, case: dict[str, float], said: str) -> None:
    others = dict.fromkeys((f"{world}/sbc minus {arm}" for arm in ("value", "ppo")), LEVEL)
    assert said in page.primary(others | {f"{world}/sbc minus returns": case}, world)


@pytest.mark.parametrize(
    ("ppo", "said"),
    [
        (LEVEL, ". Credit does not matter here within what these runs can see"),
        (
            contrast(-0.03, -0.04, -0.02, 0.001),
            "; `ppo` was ahead of `sbc` by 0.030. The oracle was not found ahead of `grpo` here",
        ),
    ],
)
def test_where_the_oracle_is_not_ahead(ppo: dict[str, float], said: str) -> None:
    figures = {f"webshop/sbc minus {arm}": LEVEL for arm in ("returns", "value")}
    figures |= {"webshop/sbc minus ppo": ppo}
    figures |= {"webshop/oracle minus grpo": {"gap": 0.0, "gap_low": -0.1, "gap_high": 0.1}}
    assert said in page.primary(figures, "webshop")


def test_what_explains_the_order() -> None:
    def case(explains: float) -> dict[str, float]:
        return {"explains": explains, "p": 0.01}

    figures = {"webshop, direction, 6 arms": case(0.8), "webshop, noise, 6 arms": case(0.1)}
    rows = page.explained(figures).splitlines()
    assert "| WebShop | +0.80 (p 0.01) | +0.10 (p 0.01) | 6 | direction |" in rows
    assert "| Sokoban | – | – |  | not known |" in rows
    figures["webshop, noise, 6 arms"] = case(0.7)
    assert "neither alone" in page.explained(figures)


@pytest.mark.parametrize(
    ("gain", "more", "said"),
    [
        ((0.2, 0.1, 0.3), (0.1, 0.05, 0.2), ("more of its", "gained more than")),
        ((0.2, -0.1, 0.3), (-0.1, -0.2, -0.05), ("no gain was found", "gained less than")),
        ((-0.2, -0.3, -0.1), (0.1, -0.1, 0.3), ("won fewer", "No difference")),
        ((0.2,), (0.1,), ("in one run", "compares no arms")),
    ],
)
def test_the_page_says_what_the_language_model_learned(
    gain: tuple[float, ...], more: tuple[float, ...], said: tuple[str, str]
) -> None:
    def case(values: tuple[float, ...]) -> dict[str, float]:
        names = ("success", "success_low", "success_high")
        formed = {name.replace("success", "success_if_formed"): 0.0 for name in names}
        return dict(zip(names, values, strict=False)) | formed

    figures = {f"sbc, seed {seed}": {"success": 0.5} for seed in range(1, len(gain) + 1)}
    figures |= {"grpo, gain": case(gain), "sbc, gain": case(gain), "sbc minus grpo": case(more)}
    text = page.smollm2(figures)
    assert all(part in text for part in said)


@pytest.mark.parametrize("name", ["sceptic", "sceptic_gradients"])
def test_the_figures_follow_from_the_curves(name: str) -> None:
    """The committed results are what the committed curves give."""
    if not (page.RESULTS / f"{name}.jsonl").exists():
        pytest.skip("the runs are not finished")
    curves = read_lines(page.RESULTS / name / "curve.jsonl")
    if name == "sceptic":
        found = reported(sceptic.report, sceptic.FULL, curves)
    else:
        found = reported(sceptic_gradients.report, curves, sceptic_gradients.learned())
    committed = read_lines(page.RESULTS / f"{name}.jsonl")[1:]
    assert found == [{key: line[key] for key in ("case", "metric", "value")} for line in committed]


@pytest.mark.parametrize("path", [page.PAGE, *page.QUOTING], ids=lambda path: path.stem)
def test_pages_say_what_the_results_are(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert page.filled(text) == text
