"""Fill ``docs/learning.md`` and ``README.md`` from the committed results.

    python benchmarks/learning_page.py

The sentences of the block ``answer`` are those that ``benchmarks/learning_protocol.md`` has for
each outcome. "Ahead" and "behind" in it are differences whose corrected p is below 0.05.
"""

from math import isnan, nan
from statistics import mean

from audit_policy_page import OBJECTIVES, PolicyResults
from common import RESULTS, ROOT, fill_page, read_lines
from learning_experiment import ARMS, BASE, CONTROLS, FULL, PRIMARY, RECIPES, predictions

from ascribe.audit.report import markdown

PAGE = ROOT / "docs" / "learning.md"
README = ROOT / "README.md"
PICTURE = "![Success over training, and differences in AUC](figures/learning_experiment.svg)"
ENVIRONMENTS = tuple(dict.fromkeys(cell[0] for cell in FULL.cells))
WEAK = tuple(f"{environment}/weak" for environment in ENVIRONMENTS)
SPEED = {1: "faster", -1: "more slowly"}
SCORES = ("update_cosine", "learning_auc")
AUDITED = {"gigpo": "gigpo, text", "hgpo": "hgpo, text", "sbc": "sbc, text"}
AUDITED |= {"bipace_q": "bipace_q, hidden"}
"""What the audit of real policies calls a recipe with the states that it has here."""

Case = dict[str, float]
"""Values by metric."""
Cases = dict[str, Case]


def read(name: str) -> Cases:
    """The figures of committed results."""
    found: Cases = {}
    for line in read_lines(RESULTS / f"{name}.jsonl")[1:]:
        found.setdefault(line["case"], {})[line["metric"]] = line["value"]
    return found


# Numbers.


def value(case: Case, metric: str) -> str:
    """A value with its interval, if there is one; differences have a sign."""
    if metric not in case:
        return "–"
    form = "+.3f" if metric in ("difference", "gain") else ".3f"
    shown = [f"{case[metric + end]:{form}}" for end in ("", "_low", "_high")]
    return "{} ({} to {})".format(*shown)


def chance(case: Case, metric: str = "p") -> str:
    """A value of p, if there is one."""
    if metric not in case:
        return "–"
    return f"{case[metric]:.2g}" if case[metric] >= 1e-4 else "below 0.0001"


def tested(case: Case) -> str:
    """A difference and what its test says."""
    p = f"corrected p {chance(case, 'holm')}" if "holm" in case else f"p {chance(case)}"
    return f"{value(case, 'difference')}, {p}"


def side(case: Case) -> int:
    """1 if the first of two is ahead, -1 if it is behind, 0 if neither was found."""
    if case.get("holm", case["p"]) >= 0.05:
        return 0
    return 1 if case["difference"] > 0 else -1


def smallest(case: Case) -> float:
    """What is found with a power of 0.9, two-sided at 0.05, by the normal approximation."""
    return float((1.96 + 1.28) * case["paired_sd"] / case["seeds"] ** 0.5)


# What is said.


def verdicts(figures: Cases) -> list[str]:
    """The protocol's sentences for these figures, that on the primary contrast first."""
    grpo, returns = (figures[f"all/{name} minus {BASE}"] for name in ("grpo", "returns"))
    random = figures[f"weak/{BASE}, random groups minus {BASE}"]
    if side(random) < 0:
        groups = f"`{BASE}` was ahead of its random groups"
    elif side(grpo) < 0:
        groups = f"Here the gain of `{BASE}` over `grpo` does not come from comparing equal states"
    else:
        groups = f"`{BASE}` was ahead neither of its random groups nor of `grpo`"
    groups += f" (random groups minus `{BASE}`: {tested(random)}; `grpo` minus `{BASE}`: "
    alone = f"Discounting alone did {'worse' if side(returns) < 0 else 'as well'}"
    said = [
        _primary(figures),
        f"{groups}{tested(grpo)}).",
        f"{alone} (`returns` minus `{BASE}`: {tested(returns)}).",
    ]
    for name in ("bigpo", "bipace_q"):
        case = figures[f"weak/{name}, pretrained minus {name}"]
        own, other = (
            mean(figures[f"{place}/{arm}"]["purity"] for place in WEAK)
            for arm in (name, f"{name}, pretrained")
        )
        if other <= own:
            outcome = (
                "pretrained fingerprints made no purer clusters, so they do not test the claim"
            )
        elif side(case) > 0:
            outcome = "clusters help where hidden states tell states apart"
        else:
            outcome = "better clusters did not help here"
        said.append(
            f"`{name}`: {outcome} (pretrained fingerprints minus its own: {tested(case)}; purity "
            f"{other:.2f} against {own:.2f})."
        )
    for name, case in figures.items():
        if (found := case.get("rank_correlation")) is not None:
            order = "predicted the order" if found >= 0.3 else "did not predict the order"
            in_part = " in part" if 0.3 <= found <= 0.6 else ""
            said.append(f"The audit {order}{in_part} ({name}: rank correlation {found:.2f}).")
    least = least_corrected(figures)
    if least >= 0.05:
        said.append(
            f"With so few seeds the smallest corrected p there can be is {least:.3f}. So no "
            "contrast but the primary one could be found; read the others by their intervals."
        )
    return said


def least_corrected(figures: Cases) -> float:
    """The smallest corrected p that a contrast could have, if it had one sign in all seeds."""
    tests = [case for case in figures.values() if "holm" in case]
    return float(min((len(tests) * 2 / 2 ** case["seeds"] for case in tests), default=0.0))


def _primary(figures: Cases) -> str:
    case = figures[f"all/{PRIMARY} minus {BASE}"]
    where = "in mean success over training, in small policies in two environments"
    sign = side(case)
    if sign == 0:
        bound = max(-case["difference_low"], case["difference_high"])
        return (
            f"No difference was found; differences above {bound:.3f} are ruled out: `{PRIMARY}` "
            f"minus `{BASE}` is {tested(case)}, {where}. With {case['seeds']:.0f} seeds, the power "
            f"to find a difference of {smallest(case):.3f} was 0.9."
        )
    said = f"`{PRIMARY}` learned {SPEED[sign]} than `{BASE}`: by {_by(case, sign)} {where} "
    said += f"(p {chance(case)})"
    for environment in ENVIRONMENTS:
        one = figures[f"{environment}/{PRIMARY} minus {BASE}"]
        if max(sign * one["difference_low"], sign * one["difference_high"]) < 0:
            said += f"; in `{environment}` alone {SPEED[-sign]}, by {_by(one, -sign)}"
    return f"{said}."


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
    return [value(case, "difference"), chance(case), chance(case, "holm")]


def _recipes(figures: Cases) -> str:
    rows = []
    for name in _ordered(figures, "all"):
        scores = [value(figures[f"all/{name}"], metric) for metric in ("auc", "iqm")]
        rates = [f"{figures[f'{place}/{name}']['learning_rate']:g}" for place in ENVIRONMENTS]
        rows.append([name, *scores, *_contrast(figures, name, BASE, "all"), ", ".join(rates)])
    rates_of = f"learning rates ({', '.join(ENVIRONMENTS)})"
    return markdown(["recipe", "AUC", "IQM", f"minus {BASE}", "p", "corrected p", rates_of], rows)


def _cells(figures: Cases) -> str:
    rows = []
    for place in map("/".join, FULL.cells):
        for name in _ordered(figures, place):
            scores = [value(figures[f"{place}/{name}"], metric) for metric in ("auc", "end")]
            apart = _contrast(figures, name, BASE, place)[0]
            rows.append([place.replace("/", ", "), name, *scores, apart])
    return markdown(["cell", "recipe", "AUC", "success at the end", f"AUC minus {BASE}"], rows)


def _controls(figures: Cases) -> str:
    rows = []
    for name in CONTROLS:
        case = figures[f"weak/{name} minus {(other := ARMS[name].tuned_as)}"]
        size = [f"{case['paired_sd']:.3f}", f"{case['seeds']:.0f}"]
        rows.append([name, other, *_contrast(figures, name, other, "weak"), *size])
    head = ["control", "minus", "difference", "p", "corrected p", "paired sd", "seeds"]
    return markdown(head, rows)


def _purity(figures: Cases) -> str:
    arms = [arm for arm in ARMS if "purity" in figures[f"{WEAK[0]}/{arm}"]]
    rows = [[a, *(f"{figures[f'{place}/{a}']['purity']:.2f}" for place in WEAK)] for a in arms]
    return markdown(["recipe", *(place.replace("/", ", ") for place in WEAK)], rows)


def _audit(figures: Cases) -> str:
    """Scores of both audits beside what was learned."""
    small, real, rows = list(map(predictions, SCORES)), PolicyResults("audit_policy"), []
    for name in _ordered(figures, "all"):
        found = [scores.get(ARMS[name].recipe, nan) for scores in small]
        for objective in OBJECTIVES:
            rest = objective, AUDITED.get(name, name), "batch_cosine"
            found.append(mean(mean(real.of_seeds(s, *rest) or [nan]) for s in real.stages))
        shown = ["–" if isnan(score) else f"{score:.2f}" for score in found]
        rows.append([name, f"{figures[f'all/{name}']['auc']:.3f}", *shown])
    cosines = [f"batch_cosine, {objective}" for objective in OBJECTIVES]
    return markdown(["recipe", "AUC here", *SCORES, *cosines], rows)


def _correlations(figures: Cases) -> str:
    found = {name: case for name, case in figures.items() if "rank_correlation" in case}
    rows = [[name, f"{case['rank_correlation']:.2f}", chance(case)] for name, case in found.items()]
    return markdown(["AUC here against", "rank correlation", "one-sided p"], rows)


def _power(figures: Cases) -> str:
    case = figures[f"all/{PRIMARY} minus {BASE}"]
    row = [f"{case['seeds']:.0f}", f"{case['paired_sd']:.4f}", f"{smallest(case):.4f}"]
    return markdown(["seeds", "paired sd", "difference that is found with a power of 0.9"], [row])


def smollm2() -> str:
    """A line for each engine."""
    rows = []
    for engine in ("trl", "verl"):
        found = read(f"learning_smollm2_{engine}")
        played = [value(case, "success") for case in found.values() if "success" in case]
        gain = value(found[f"{engine}, gain"], "gain")
        goals = read_lines(RESULTS / f"learning_smollm2_{engine}" / "goals.jsonl")
        won = [
            " to ".join(str(sum(goal[end] >= least for goal in goals)) for end in ("start", "end"))
            for least in (1, 0.25)
        ]
        rows.append([engine, f"{found[engine]['iterations']:.0f}", *played, gain, *won])
    head = ["engine", "iterations", "success at the start", "success at the end", "mean gain"]
    return markdown([*head, "goals won in all episodes", "in at least one"], rows)


def filled(text: str) -> str:
    """The page with what is committed."""
    blocks = {"smollm2": smollm2()}
    if (RESULTS / "learning_experiment.jsonl").exists():
        figures = read("learning_experiment")
        first, *others = verdicts(figures)
        blocks["answer"] = "\n".join([f"**{first}**", "", *(f"- {each}" for each in others)])
        blocks["figure"] = PICTURE
        makers = (_recipes, _cells, _controls, _purity, _audit, _correlations, _power)
        blocks |= {make.__name__.strip("_"): make(figures) for make in makers}
    return fill_page(text, {name: f"{block}\n" for name, block in blocks.items() if block})


def readme(text: str) -> str:
    """The README with the sentence on the primary contrast."""
    return fill_page(text, {"learning": f"{_primary(read('learning_experiment'))}\n"})


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    README.write_text(readme(README.read_text(encoding="utf-8")), encoding="utf-8")
