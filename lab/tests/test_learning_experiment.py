"""The learning experiment: its statistics by brute force, its runs paired and resumable."""

import copy
import itertools
import json
import subprocess
import sys
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.engine

torch = pytest.importorskip("torch", reason="needs the extra actor")
pytest.importorskip("transformers", reason="needs the extra actor")

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import learning_experiment as experiment  # noqa: E402
import learning_loop as loop  # noqa: E402
import learning_page as page  # noqa: E402

COMMITTED = BENCHMARKS / "results" / "learning_experiment.jsonl"


@pytest.mark.parametrize("count", [2, 5, 9])
def test_sign_flips_by_hand(count: int) -> None:
    differences = np.random.default_rng(count).normal(0.3, 1.0, count)
    sums = np.array(list(itertools.product((-1, 1), repeat=count))) @ differences
    wanted = (np.abs(sums) >= abs(differences.sum()) - 1e-9).mean()
    assert experiment.sign_flip(differences) == pytest.approx(wanted)


def test_extreme_sign_flips() -> None:
    assert experiment.sign_flip([0.0] * 4) == 1.0
    assert experiment.sign_flip([0.1] * 24) == 2 / 2**24


def test_holm() -> None:
    corrected = experiment.holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.5})
    assert corrected == pytest.approx({"a": 0.04, "c": 0.09, "b": 0.09, "d": 0.5})


def test_middle_mean_leaves_out_a_quarter_on_either_side() -> None:
    assert experiment.middle_mean(np.array([-50, 1, 2, 3, 4, 5, 6, 900])) == 3.5


def test_rank_correlation() -> None:
    assert experiment.spearman([1, 2, 3, 4], [10, 20, 30, 40]) == (1.0, pytest.approx(1 / 24))
    assert experiment.spearman([1, 2, 3], [5, 5, 5]) == (0.0, 1.0)
    assert experiment.spearman([1, 2, 3, 4, 5], [1, 2, 3, 5, 4])[0] == pytest.approx(0.9)


def test_the_rate_is_that_of_the_largest_mean() -> None:
    def line(rate: float, seed: int, end: float) -> dict[str, object]:
        return {"environment": "e", "arm": "a", "rate": rate, "seed": seed, "held_out": [0.0, end]}

    lines = [line(1e-3, 201, 0.9), line(1e-3, 202, 0.1), line(3e-3, 201, 0.6)]
    lines += [line(3e-3, 202, 0.6), line(1e-2, 101, 1.0)]
    assert experiment.chosen_rates(experiment.FULL, lines) == {("e", "a"): 3e-3}


def test_the_protocol_names_what_is_run() -> None:
    page = (BENCHMARKS / "learning_protocol.md").read_text(encoding="utf-8")
    for name in experiment.RECIPES:
        assert f"`{name}`" in page
    assert f"**Primary contrast:** `{experiment.PRIMARY}` against `{experiment.BASE}`" in page
    seeds = experiment.FULL.seeds
    assert f"{seeds[0]} to {seeds[-1]}" in page


# The page.


def contrast(difference: float, p: float, **more: float) -> page.Case:
    ends = {"difference_low": difference - 0.01, "difference_high": difference + 0.01}
    return {"difference": difference, "p": p, "paired_sd": 0.02, "seeds": 16} | ends | more


def corrected(difference: float, p: float) -> page.Case:
    looks = {"holm": p / 2, "holm_first_look": 0.2, "holm_two_looks": p}
    return contrast(difference, p / 10, **looks)


@pytest.fixture
def figures() -> page.Cases:
    """Every contrast is found, and for the first of its two."""
    found: page.Cases = {
        "update_cosine of the audit, 6 recipes": {"rank_correlation": 0.7, "p": 0.1}
    }
    for place in ("all", *page.ENVIRONMENTS):
        found[f"{place}/sbc minus gigpo"] = contrast(0.02, 0.01, ahead=15)
    for name in ("grpo", "returns"):
        found[f"all/{name} minus gigpo"] = corrected(0.02, 0.04)
    for cell in experiment.FULL.cells:
        found[f"{'/'.join(cell)}/returns minus gigpo"] = contrast(0.02, 0.01)
    found["explored: all/sbc minus returns"] = contrast(0.0, 1.0)
    found["explored: weak/sbc, random groups minus grpo"] = contrast(-0.02, 0.01)
    found["weak/gigpo, random groups minus gigpo"] = corrected(0.02, 0.04)
    for name in ("bigpo", "bipace_q"):
        found[f"weak/{name}, pretrained minus {name}"] = corrected(0.02, 0.04)
        for place in page.WEAK:
            found[f"{place}/{name}"] = {"purity": 0.5}
            found[f"{place}/{name}, pretrained"] = {"purity": 0.8}
    return found


def test_verdict_faster(figures: page.Cases) -> None:
    figures["sokoban/sbc minus gigpo"] = contrast(0.03, 0.01, ahead=16)
    assert page.verdicts(figures)[0] == (
        "In Sokoban, `sbc` learned faster than `gigpo`: by 0.030 (0.020 to 0.040) in mean success "
        "over training, in small policies, in 16 of 16 seeds. Over both environments it is +0.020 "
        "(+0.010 to +0.030), p 0.01."
    )


def test_verdict_slower(figures: page.Cases) -> None:
    figures["all/sbc minus gigpo"] = contrast(-0.02, 0.01)
    figures["sokoban/sbc minus gigpo"] = contrast(-0.03, 0.01, ahead=1)
    said = page.verdicts(figures)[0]
    assert said.startswith("In Sokoban, `sbc` learned more slowly than `gigpo`: by 0.030 (0.020 to")
    assert "in 15 of 16 seeds" in said


def test_verdict_where_sokoban_alone_shows_nothing(figures: page.Cases) -> None:
    figures["sokoban/sbc minus gigpo"] = contrast(0.005, 0.3, ahead=9)
    said = page.verdicts(figures)[0]
    assert said.startswith("In Sokoban, `sbc` minus `gigpo` is +0.005 (-0.005 to +0.015) in mean")


@pytest.mark.parametrize("difference", [0.004, -0.004])
def test_verdict_without_a_difference(figures: page.Cases, difference: float) -> None:
    figures["all/sbc minus gigpo"] = contrast(difference, 0.05)
    assert page.verdicts(figures)[0] == (
        "No difference was found; differences above 0.014 are ruled out: `sbc` minus `gigpo` is "
        f"{difference:+.3f} ({difference - 0.01:+.3f} to {difference + 0.01:+.3f}), p 0.05, in "
        "mean success over training, in small policies in two environments. With 16 seeds, the "
        "power to find a difference of 0.016 was 0.9."
    )


def test_the_seeds_that_were_planned_are_named(figures: page.Cases) -> None:
    assert page.verdicts(figures)[1].startswith(
        "16 of 24 planned seeds were run; the smallest p that 16 seeds can give is 3.1e-05 (2^-15)"
    )


@pytest.mark.parametrize(
    ("difference", "p", "said"),
    [
        (-0.02, 0.04, "`gigpo` was ahead of its random groups (random groups minus `gigpo`:"),
        (-0.02, 0.07, "Whether `gigpo` gains from comparing equal states is open ("),
        (0.02, 0.04, "Whether `gigpo` gains from comparing equal states is open ("),
    ],
)
def test_verdict_on_random_groups(
    figures: page.Cases, difference: float, p: float, said: str
) -> None:
    figures["weak/gigpo, random groups minus gigpo"] = corrected(difference, p)
    verdict = page.verdicts(figures)[3]
    assert verdict.startswith(said)
    assert f"{p / 2:.2g} for one look, and 0.2 after the first 9 seeds" in verdict


@pytest.mark.parametrize(
    ("difference", "p", "said"),
    [
        (0.02, 0.04, "`returns`, which discounts and compares no states, was ahead of `gigpo` ("),
        (-0.02, 0.05, "No difference was found between `returns`, which compares no states, and"),
        (-0.02, 0.04, "`returns`, which discounts and compares no states, was behind `gigpo` ("),
    ],
)
def test_verdict_on_discounting(
    figures: page.Cases, difference: float, p: float, said: str
) -> None:
    figures["all/returns minus gigpo"] = corrected(difference, p)
    figures["sokoban/strong/returns minus gigpo"] = contrast(-0.02, 0.01)
    verdict = page.verdicts(figures)[4]
    assert verdict.startswith(said)
    assert "behind in 1 of 4 cells" in verdict


def test_verdict_on_clusters(figures: page.Cases) -> None:
    figures["weak/bipace_q, pretrained minus bipace_q"] = corrected(0.02, 0.05)
    first, second = page.verdicts(figures)[5:7]
    assert first.startswith("`bigpo`: clusters help where hidden states tell states apart (")
    assert second.startswith("`bipace_q`: better clusters did not help here (")
    assert second.endswith("purity 0.80 against 0.50).")


def test_verdict_on_the_audit(figures: page.Cases) -> None:
    name = "update_cosine of the audit, 5 recipes without sbc"
    figures[name] = {"rank_correlation": 0.6, "p": 0.175}
    assert page.verdicts(figures)[-1] == (
        "Rank correlation of the audit with this order: 0.70, one-sided p 0.1 (update_cosine of "
        f"the audit, 6 recipes); 0.60, one-sided p 0.17 ({name}). `sbc` was tuned on the audit."
    )


def test_few_seeds_are_said_to_be_few(figures: page.Cases) -> None:
    before = page.verdicts(figures)
    for case in figures.values():
        if "seeds" in case:
            case["seeds"] = 5
    (*same, last) = page.verdicts(figures)
    assert len(same) == len(before)
    assert last.startswith("With so few seeds the smallest corrected p")


def test_the_page_is_what_the_results_say() -> None:
    text = page.PAGE.read_text(encoding="utf-8")
    assert page.filled(text) == text
    for path in page.QUOTING:
        text = path.read_text(encoding="utf-8")
        assert page.quoted(text) == text


def test_the_page_says_what_the_curves_give() -> None:
    """From the curves alone: means over seeds, with intervals by Student's t (10 degrees)."""
    curves: dict[tuple[str, str], dict[int, list[float]]] = {}
    for line in page.read_lines(COMMITTED.with_suffix("") / "curve.jsonl"):
        if line["seed"] < 200:
            held_out = line["held_out"]
            area = (sum(held_out) - (held_out[0] + held_out[-1]) / 2) / (len(held_out) - 1)
            key = f"{line['environment']}/{line['start']}", line["arm"]
            curves.setdefault(key, {})[line["seed"]] = area

    def shown(first: str, second: str, *places: str) -> str:
        seeds = sorted(curves["sokoban/weak", "gigpo"])
        apart = np.array(
            [
                np.mean([curves[p, first][seed] - curves[p, second][seed] for p in places])
                for seed in seeds
            ]
        )
        assert len(seeds) == 11
        half = 2.2281 * apart.std(ddof=1) / 11**0.5
        ends = (apart.mean(), apart.mean() - half, apart.mean() + half)
        return "{} ({} to {})".format(*(f"{end:+.3f}" for end in ends))

    everywhere = [f"{e}/{start}" for e in ("textcraft", "sokoban") for start in ("weak", "strong")]
    weak, sokoban = everywhere[::2], everywhere[2:]
    pages = (BENCHMARKS.parent / "docs" / "learning.md", BENCHMARKS.parent / "README.md")
    text, readme = (path.read_text(encoding="utf-8") for path in pages)
    primary = shown("sbc", "gigpo", *sokoban).replace("+", "")
    for said in (text, readme):
        assert f"In Sokoban, `sbc` learned faster than `gigpo`: by {primary} in mean" in said
        assert f"Over both environments it is {shown('sbc', 'gigpo', *everywhere)}, p" in said
        pointless = shown("sbc, random groups", "grpo", *weak)
        assert f"(random groups), `sbc` minus `grpo` is {pointless}." in said
    assert f"`returns` minus `gigpo`: {shown('returns', 'gigpo', *everywhere)}" in text
    assert f"`sbc` minus `returns`: {shown('sbc', 'returns', *everywhere)}" in text
    added = "returns, discount 0.9"
    for place in weak:
        assert f"changes `returns` by {shown(added, 'returns', place)}" in text
        assert f"`sbc` minus that is {shown('sbc', added, place)}" in text


@pytest.mark.slow
@pytest.mark.skipif(not COMMITTED.exists(), reason="the runs are under way")
def test_the_results_are_what_the_curves_say(tmp_path: Path) -> None:
    out = tmp_path / COMMITTED.name
    command = [sys.executable, str(BENCHMARKS / "learning_experiment.py"), "--minutes", "0"]
    command += ["--curves", str(COMMITTED.with_suffix("") / "curve.jsonl"), "--out", str(out)]
    subprocess.run(command, check=True, capture_output=True)
    kept, found = (page.read_lines(path)[1:] for path in (COMMITTED, out))
    values = [[line.pop("value") for line in lines] for lines in (kept, found)]
    assert found == kept
    assert values[1] == pytest.approx(values[0], rel=1e-9)


# Runs.


@pytest.fixture(scope="module")
def policy() -> object:
    torch.set_num_threads(1)
    return loop.clone("textcraft", loop.Start(0.5, 3), 1)


def test_log_probabilities_of_the_sampler_are_those_of_transformers(policy: object) -> None:
    steps, _ = loop.play_policy(policy, loop.TextCraft, (0, 5), 1, "plain")
    for step in steps[::5]:
        with torch.no_grad():
            out = policy(torch.tensor([step.prompt + step.tokens]), output_hidden_states=True)
        logps = out.logits[0, :-1].log_softmax(-1)[-len(step.tokens) :]
        said = logps.gather(1, torch.tensor(step.tokens)[:, None])[:, 0]
        np.testing.assert_allclose(step.logps, said, atol=1e-5)
        hidden = out.hidden_states[loop.LAYER][0, len(step.prompt) - 1]
        np.testing.assert_allclose(step.fingerprint, hidden, atol=1e-5)


@pytest.mark.parametrize("name", loop.WORLDS)
def test_demonstrations_win_and_are_in_the_vocabulary(name: str) -> None:
    import random

    world, rng = loop.WORLDS[name], random.Random(0)

    def choose(rows: list[loop.Step], worlds: list[object], _: object) -> None:
        for row, one in zip(rows, worlds, strict=True):
            row.action = one.demonstrate(rng, 0.0)
            row.tokens = world.tokens.encode(row.action)
            assert world.tokens.decode(row.tokens) == row.action
            assert len(row.tokens) <= world.longest
            assert 1 not in row.prompt + row.tokens

    assert loop.play(world, world.tasks, 1, "expert", choose)[1] == 1.0


def test_two_runs_are_the_same_and_sizes_are_equal(policy: object) -> None:
    run = loop.Run("sokoban", loop.recipe("gigpo"), 1e-3, 5, 1, 1, 32)
    start = loop.new_policy(loop.SokobanRoom, 0)
    first, second = (list(run.train(copy.deepcopy(start))) for _ in range(2))
    assert first == second
    other = list(replace(run, recipe=loop.recipe("grpo")).train(copy.deepcopy(start)))
    assert [line.get("success") for line in other] == [line.get("success") for line in first]


def test_a_seed_that_is_finished_in_part_is_left_out() -> None:
    design = experiment.QUICK
    rates = {(cell[0], name): 1e-3 for cell in design.cells for name in design.recipes}
    units = experiment.tuning(design) + experiment.comparison(design, rates)
    lines = [
        {"environment": unit.cell[0], "start": unit.cell[1], "arm": arm, "rate": rate}
        | {"seed": unit.seed, "held_out": [0.0, 1.0 - rate]}
        for unit in units
        for arm, rate in unit.runs
    ]
    assert len(experiment.of_complete_seeds(design, lines)) == len(lines)
    last = experiment.of_complete_seeds(design, lines[:-1])
    assert {line["seed"] for line in last} == {*design.tuning_seeds, design.seeds[0]}
    few = experiment.of_complete_seeds(design, lines[:1])
    assert few == lines[:1]


def test_finished_runs_are_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    design = replace(experiment.QUICK, cloning=0, held_out=8, cells=(("sokoban", "weak"),))
    options = Namespace(processes=1, deadline=float("inf"))
    units = experiment.tuning(design)
    experiment.run_units(units, design, tmp_path, options)
    files = sorted(tmp_path.glob("*.json"))
    assert len(files) == 4
    before = [json.loads(file.read_text()) for file in files]
    monkeypatch.setattr(loop, "clone", None)
    experiment.run_units(units, design, tmp_path, options)
    files[0].unlink()
    options.deadline = 0.0
    experiment.run_units(units, design, tmp_path, options)
    assert experiment.finished(tmp_path) == before[1:]
