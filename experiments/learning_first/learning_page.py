"""Fill ``report.md`` from the committed results.

    python -m experiments.learning_first.learning_page

The sentences of the block ``answer`` are those that ``protocol.md`` has for each outcome, as its
last changes have them. "Ahead" and "behind" in it are differences whose
corrected p, counting both looks at the results, is below 0.05.
"""

from pathlib import Path
from statistics import mean

from ascribe_lab.audit.report import markdown
from benchmarks.common import fill_page, read_lines
from experiments.common import Case, Cases, chance, read
from experiments.learning_first.learning_experiment import (
    BASE,
    FIRST_LOOK,
    FULL,
    PRIMARY,
    RECIPES,
    SCORES,
)

RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).with_name("report.md")
PICTURE = (
    "![Success over training, and differences in AUC](../../docs/figures/learning_experiment.svg)"
)
ENVIRONMENTS = tuple(dict.fromkeys(cell[0] for cell in FULL.cells))
WEAK = tuple(f"{environment}/weak" for environment in ENVIRONMENTS)
UNSEEN, DEVELOPED_ON = "sokoban", "textcraft"
"""The environment that did not serve the development of the primary recipe, and the other."""
PLANNED = len(FULL.seeds)
SPEED = {1: "faster", -1: "more slowly"}
CORRECTED = "holm_two_looks"
"""The corrected p that decides."""

# Numbers.


def value(case: Case, metric: str) -> str:
    """A value with its interval, if there is one; differences have a sign."""
    if metric not in case:
        return "–"
    form = "+.3f" if metric in ("difference", "gain") else ".3f"
    shown = [f"{case[metric + end]:{form}}" for end in ("", "_low", "_high")]
    return "{} ({} to {})".format(*shown)


def tested(case: Case) -> str:
    """A difference and what its test says."""
    p = f"corrected p {chance(case, CORRECTED)}" if CORRECTED in case else f"p {chance(case)}"
    return f"{value(case, 'difference')}, {p}"


def side(case: Case) -> int:
    """1 if the first of two is ahead, -1 if it is behind, 0 if neither was found."""
    if case.get(CORRECTED, case["p"]) >= 0.05:
        return 0
    return 1 if case["difference"] > 0 else -1


def excludes_zero(case: Case, sign: int) -> bool:
    """Whether the whole interval has this sign."""
    return bool(min(sign * case["difference_low"], sign * case["difference_high"]) > 0)


def smallest(case: Case) -> float:
    """What is found with a power of 0.9, two-sided at 0.05, by the normal approximation."""
    return float((1.96 + 1.28) * case["paired_sd"] / case["seeds"] ** 0.5)


# What is said.


def verdicts(figures: Cases) -> list[str]:
    """What is said for these figures, that on the primary contrast first."""
    said = [_primary(figures), _seeds(figures), _pointless(figures), _random_groups(figures)]
    said += [_discounting(figures), *(_clusters(figures, name) for name in ("bigpo", "bipace_q"))]
    parts = [f"{_rank(case)} ({n})" for n, case in figures.items() if n.startswith(SCORES[0])]
    said.append(
        f"Rank correlation of the audit with this order: {'; '.join(parts)}. `{PRIMARY}` was "
        "tuned on the audit."
    )
    least = least_corrected(figures)
    if least >= 0.05:
        said.append(
            f"With so few seeds the smallest corrected p there can be is {least:.3f}. So no "
            "contrast but the primary one could be found; read the others by their intervals."
        )
    return said


def _rank(case: Case) -> str:
    return f"{case['rank_correlation']:.2f}, one-sided p {chance(case)}"


def _seeds(figures: Cases) -> str:
    """What the seeds allow, and which environment counts."""
    case = figures[f"all/{PRIMARY} minus {BASE}"]
    seeds, other = int(case["seeds"]), figures[f"{DEVELOPED_ON}/{PRIMARY} minus {BASE}"]
    floor = 2.0 ** (1 - seeds)
    said = f"{seeds} of {PLANNED} planned seeds were run; the smallest p that {seeds} seeds can "
    said += f"give is {floor:.2g} (2^-{seeds - 1}). "
    return said + (
        f"`{DEVELOPED_ON}`, with the same games, also served to develop `{PRIMARY}`; there the "
        f"difference is {value(other, 'difference')}, so `{UNSEEN}` counts for more."
    )


def _pointless(figures: Cases) -> str:
    """What becomes of the primary recipe without states."""
    case = figures[f"explored: weak/{PRIMARY}, random groups minus grpo"]
    return (
        f"With states that mean nothing (random groups), `{PRIMARY}` minus `grpo` is "
        f"{value(case, 'difference')}."
    )


def _random_groups(figures: Cases) -> str:
    grpo = figures[f"all/grpo minus {BASE}"]
    random = figures[f"weak/{BASE}, random groups minus {BASE}"]
    if side(random) < 0:
        said = f"`{BASE}` was ahead of its random groups"
    else:
        said = f"Whether `{BASE}` gains from comparing equal states is open"
    said += f" (random groups minus `{BASE}`: {tested(random)}"
    if CORRECTED in random:
        said += (
            f", which counts two looks at the results; {chance(random, 'holm')} for one look, and "
            f"{chance(random, 'holm_first_look')} after the first {FIRST_LOOK} seeds"
        )
    return f"{said}; `grpo` minus `{BASE}`: {tested(grpo)})."


def _discounting(figures: Cases) -> str:
    """What discounting alone did, and by how much it is behind the primary recipe."""
    returns = figures[f"all/returns minus {BASE}"]
    found = {1: "was ahead of", -1: "was behind", 0: ""}[side(returns)]
    said = f"`returns`, which discounts and compares no states, {found} `{BASE}`"
    if not found:
        said = f"No difference was found between `returns`, which compares no states, and `{BASE}`"
    cells = [figures[f"{'/'.join(cell)}/returns minus {BASE}"] for cell in FULL.cells]
    behind = sum(excludes_zero(case, -1) for case in cells)
    said += f" (`returns` minus `{BASE}`: {tested(returns)}; behind in {behind} of {len(cells)} "
    said += "cells by their intervals)."
    apart = figures[f"explored: all/{PRIMARY} minus returns"]
    said += f" `{PRIMARY}` minus `returns`: {value(apart, 'difference')}"
    for place in WEAK:
        if shorter := figures.get(f"explored: {place}/{PRIMARY} minus returns, discount 0.9"):
            gain = figures[f"explored: {place}/returns, discount 0.9 minus returns"]
            said += (
                f". From the weak start of `{place.split('/')[0]}`, a discount of 0.9 in place of "
                f"0.95 changes `returns` by {value(gain, 'difference')}, and `{PRIMARY}` minus "
                f"that is {value(shorter, 'difference')}"
            )
    return f"{said}."


def _clusters(figures: Cases, name: str) -> str:
    case = figures[f"weak/{name}, pretrained minus {name}"]
    own, other = (
        mean(figures[f"{place}/{arm}"]["purity"] for place in WEAK)
        for arm in (name, f"{name}, pretrained")
    )
    if other <= own:
        outcome = "pretrained fingerprints made no purer clusters, so they do not test the claim"
    elif side(case) > 0:
        outcome = "clusters help where hidden states tell states apart"
    else:
        outcome = "better clusters did not help here"
    return (
        f"`{name}`: {outcome} (pretrained fingerprints minus its own: {tested(case)}; purity "
        f"{other:.2f} against {own:.2f})."
    )


def least_corrected(figures: Cases) -> float:
    """The smallest corrected p that a contrast could have, if it had one sign in all seeds."""
    tests = [case for case in figures.values() if CORRECTED in case]
    return float(min((len(tests) * 4 / 2 ** case["seeds"] for case in tests), default=0.0))


def _primary(figures: Cases) -> str:
    case = figures[f"all/{PRIMARY} minus {BASE}"]
    where = "in mean success over training, in small policies"
    sign = side(case)
    if sign == 0:
        bound = max(-case["difference_low"], case["difference_high"])
        return (
            f"No difference was found; differences above {bound:.3f} are ruled out: `{PRIMARY}` "
            f"minus `{BASE}` is {tested(case)}, {where} in two environments. With "
            f"{case['seeds']:.0f} seeds, the power to find a difference of {smallest(case):.3f} "
            "was 0.9."
        )
    one = figures[f"{UNSEEN}/{PRIMARY} minus {BASE}"]
    seeds = one["ahead"] if sign > 0 else case["seeds"] - one["ahead"]
    if excludes_zero(one, sign):
        said = f"In {UNSEEN.title()}, `{PRIMARY}` learned {SPEED[sign]} than `{BASE}`: by "
        said += f"{_by(one, sign)} {where}, in {seeds:.0f} of {case['seeds']:.0f} seeds"
    else:
        said = f"In {UNSEEN.title()}, `{PRIMARY}` minus `{BASE}` is {value(one, 'difference')} "
        said += where
    return f"{said}. Over both environments it is {tested(case)}."


def _by(case: Case, sign: int) -> str:
    """A difference in one direction."""
    low, high = sorted(sign * case[f"difference_{end}"] for end in ("low", "high"))
    return f"{sign * case['difference']:.3f} ({low:.3f} to {high:.3f})"


# Tables.


def _ordered(figures: Cases, place: str) -> list[str]:
    """Recipes, that of the largest AUC first."""
    return sorted(RECIPES, key=lambda name: -figures[f"{place}/{name}"]["auc"])


def _contrast(figures: Cases, arm: str, other: str, place: str) -> list[str]:
    """A difference and its values of p; dashes for the base itself."""
    case = figures.get(f"{place}/{arm} minus {other}", {})
    return [value(case, "difference"), chance(case), chance(case, CORRECTED)]


def _recipes(figures: Cases) -> str:
    rows = []
    for name in _ordered(figures, "all"):
        scores = [value(figures[f"all/{name}"], metric) for metric in ("auc", "iqm")]
        rates = [f"{figures[f'{place}/{name}']['learning_rate']:g}" for place in ENVIRONMENTS]
        rows.append([name, *scores, *_contrast(figures, name, BASE, "all"), ", ".join(rates)])
    rates_of = f"learning rates ({', '.join(ENVIRONMENTS)})"
    return markdown(["recipe", "AUC", "IQM", f"minus {BASE}", "p", "corrected p", rates_of], rows)


def smollm2() -> str:
    """A line for each engine."""
    rows = []
    for engine in ("trl", "verl"):
        found = read(RESULTS / f"learning_smollm2_{engine}.jsonl")
        played = [value(case, "success") for case in found.values() if "success" in case]
        gain = value(found[f"{engine}, gain"], "gain")
        goals = read_lines(RESULTS / f"learning_smollm2_{engine}" / "goals.jsonl")
        won = [
            " to ".join(str(sum(goal[end] >= least for goal in goals)) for end in ("start", "end"))
            for least in (1, 0.25)
        ]
        valid = " to ".join(f"{share:.2f}" for share in _of_held_out(found, "valid_actions"))
        rows.append([engine, f"{found[engine]['iterations']:.0f}", *played, gain, valid, *won])
    head = ["engine", "iterations", "success at the start", "success at the end", "mean gain"]
    return markdown([*head, "valid actions", "goals won in all episodes", "in at least one"], rows)


def _of_held_out(found: Cases, metric: str) -> list[float]:
    """A share at the goals that were held out, at the start and at the end."""
    return [case[metric] for case in found.values() if metric in case]


def filled(text: str) -> str:
    """The page with what is committed."""
    blocks = {"smollm2": smollm2()}
    if (RESULTS / "learning_experiment.jsonl").exists():
        figures = read(RESULTS / "learning_experiment.jsonl")
        first, *others = verdicts(figures)
        blocks["answer"] = "\n".join([f"**{first}**", "", *(f"- {each}" for each in others)])
        blocks["figure"] = PICTURE
        blocks["recipes"] = _recipes(figures)
    return fill_page(text, {name: f"{block}\n" for name, block in blocks.items() if block})


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
