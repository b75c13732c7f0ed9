"""Fill ``report.md``, and the pages that quote it, from the committed results.

    python -m experiments.sceptic.sceptic_page

The sentences are those that ``protocol.md`` has for each outcome.
"""

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path

from ascribe_lab.audit.report import markdown
from benchmarks.common import ROOT, fill_page
from experiments.common import Case, Cases, chance, read
from experiments.sceptic.sceptic import ARMS, FULL, GROUPED, ORACLE, PLACES, PRIMARY

RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).with_name("report.md")
QUOTING = (ROOT / "docs" / "learning.md", ROOT / "docs" / "howto" / "recipe.md")
RIVALS = ("gigpo", "value", "ppo")
"""Other arms that the first one of the primary contrast is compared with."""
LEVEL = 0.01
"""With a clock, "level" means within so much."""
APART = "textcraft"
NAMES = {
    "sokoban, unseen rooms": "Sokoban",
    "webshop": "WebShop",
    "sokoban, clock": "Sokoban with a clock",
    "sokoban, two boxes": "Sokoban with two boxes",
    APART: "TextCraft",
}
WORLDS = tuple(world for world in FULL.worlds if world != APART)
APART_FOR = "(apart, because `sbc` was developed on it) "
Said = tuple[str, str, str]
"""What is said of the environments where the first of two arms is ahead, behind, or neither."""
CLUSTERS, STATES = "clusters of hidden states (`bipace_q`)", "equal states (`gigpo`)"
OTHERS: tuple[tuple[tuple[str, str], Said], ...] = (
    (
        ("bipace_q", "gigpo"),
        (
            f"{CLUSTERS} learned faster than {STATES} in",
            f"{CLUSTERS} learned more slowly than {STATES} in",
            "no difference between `bipace_q` and `gigpo` was found in",
        ),
    ),
    (
        ("sbc, memory", "sbc"),
        (
            "with the memory, `sbc` learned faster in",
            "with the memory, `sbc` learned more slowly in",
            "no effect of the memory was found in",
        ),
    ),
)


def side(case: Case) -> int:
    """1 if the first arm is ahead, -1 if it is behind, 0 if neither was found."""
    if case.get("holm", case["p"]) >= 0.05:
        return 0
    return 1 if case["difference"] > 0 else -1


def between(figures: Cases, world: str, first: str, second: str) -> Case:
    """The contrast of two arms in an environment."""
    return figures[f"{world}/{first} minus {second}"]


def apart(case: Case, metric: str = "difference") -> str:
    """A difference, and half the width of its interval."""
    half = (case[f"{metric}_high"] - case[f"{metric}_low"]) / 2
    return f"{case[metric]:+.3f} ±{half:.3f}"


def primary(figures: Cases, world: str) -> str:
    """What is said of the primary contrast in an environment."""
    case = between(figures, world, *PRIMARY)
    ours, base = PRIMARY
    found = f"{apart(case)}, p {chance(case)}"
    if side(case):
        speed = "faster" if side(case) > 0 else "more slowly"
        said = f"`{ours}` learned {speed} than tuned `{base}`: {found}"
    elif PLACES[world].keyed and case["difference_low"] > -LEVEL:
        better = "" if case["difference_high"] < LEVEL else ", or better"
        said = f"`{ours}` is level with tuned `{base}`{better}: {found}"
    else:
        bound = max(-case["difference_low"], case["difference_high"])
        said = f"no difference was found: {found}; "
        said += f"differences above {bound:.3f} are ruled out"
    for arm in ("value", "ppo"):
        case = between(figures, world, ours, arm)
        if side(case) < 0:
            said += f"; `{arm}` was ahead of `{ours}` by {-case['difference']:.3f}"
    return said + way(figures, world)


def way(figures: Cases, world: str) -> str:
    """How far the arm came from GRPO to the oracle, or what is said where there is no way."""
    gap = figures.get(f"{world}/{ORACLE} minus {GROUPED}")
    if gap is None:
        return ""
    if gap["gap_low"] > 0:
        came = share(figures[f"{world}/{PRIMARY[0]}"])
        return f"; it came {came} of the way from `{GROUPED}` to `{ORACLE}`"
    cases = [case for name, case in figures.items() if name.startswith(f"{world}/")]
    if any(side(case) for case in cases if "difference" in case and "p" in case):
        return f". The oracle was not found ahead of `{GROUPED}` here: {apart(gap, 'gap')}"
    return ". Credit does not matter here within what these runs can see"


def unnumbered(_: Case) -> str:
    """Nothing beside an environment's name."""
    return ""


def counted(
    figures: Cases,
    pair: tuple[str, str],
    said: Said,
    shown: Callable[[Case], str] = lambda case: f" ({apart(case)})",
) -> str:
    """In which environments the first arm of a pair is ahead, or behind; or neither was found."""
    cases = {world: between(figures, world, *pair) for world in WORLDS}
    parts = []
    for sign, words in zip((1, -1, 0), said, strict=True):
        places = [
            f"{NAMES[world]}{shown(case)}" for world, case in cases.items() if side(case) == sign
        ]
        if places:
            parts.append(f"{words} {listed(places)}")
    whole = "; ".join(parts)
    return f"{whole[0].upper()}{whole[1:]}."


def listed(names: Sequence[str]) -> str:
    """A, B and C."""
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def opening(figures: Cases, *shown: Callable[[Case], str]) -> str:
    """The primary contrast over environments, in one sentence."""
    ours, base = PRIMARY
    said = (
        f"`{ours}` learned faster than tuned `{base}` in",
        f"`{ours}` learned more slowly than tuned `{base}` in",
        f"no difference between `{ours}` and tuned `{base}` was found in",
    )
    return f"**{counted(figures, PRIMARY, said, *shown)}**"


def paragraph(figures: Cases) -> str:
    """The answer, a line for each environment, and what is said of clusters and the memory."""
    lines = []
    for world in FULL.worlds:
        why = APART_FOR if world == APART else ""
        lines.append(f"*{NAMES[world]}*: {why}{primary(figures, world)}.")
    for first, second in (pair for pair, _ in OTHERS):
        case = between(figures, APART, first, second)
        if side(case):
            lines[-1] += f" `{first}` minus `{second}`: {apart(case)}."
    lines += [ahead(figures), *(counted(figures, *each, unnumbered) for each in OTHERS)]
    return "\n".join([opening(figures, unnumbered), "", *(f"- {line}" for line in lines)])


def ahead(figures: Cases) -> str:
    """Which other arms the first one of the primary contrast is ahead of, or behind, and where."""
    ours, parts = PRIMARY[0], []
    for arm, (sign, word) in itertools.product(RIVALS, ((1, "ahead of"), (-1, "behind"))):
        cases = {world: between(figures, world, ours, arm) for world in WORLDS}
        places = [NAMES[world] for world, case in cases.items() if side(case) == sign]
        if places:
            parts.append(f"{word} `{arm}` in {listed(places)}")
    if not parts:
        return f"No difference between `{ours}` and {listed(RIVALS)} was found."
    return f"`{ours}` was {', '.join(parts)}; elsewhere no difference from these was found."


def table(figures: Cases) -> str:
    """A column for each environment: the primary contrast, and what each arm gained."""

    def cases(of: str) -> list[Case]:
        return [figures.get(f"{world}/{of}", {}) for world in FULL.worlds]

    ours, base = PRIMARY
    contrast = cases(f"{ours} minus {base}")
    rows = [
        [f"`{ours}` minus `{base}`, at the end", *(apart(case, "at_the_end") for case in contrast)],
        [
            "AUC difference found with a power of 0.9",
            *(f"{case['detectable']:.3f}" for case in contrast),
        ],
        [f"AUC of `{GROUPED}`", *(f"{case['auc']:.3f}" for case in cases(GROUPED))],
    ]
    rows += [[f"`{arm}`", *map(gained_over, cases(arm))] for arm in ARMS if arm != GROUPED]
    return markdown(["", *(NAMES[world] for world in FULL.worlds)], rows)


def gained_over(case: Case) -> str:
    """The difference to GRPO, and the share of the way to the oracle if there is one."""
    if not case:
        return "–"
    part = f", {100 * case['share']:.0f} %" if "share" in case else ""
    return f"{apart(case, 'gain')}{part}"


def tuning(figures: Cases) -> str:
    """How many of the best settings lie at the edge of those that were tried."""
    case = figures["tuning"]
    count, of_all = case["at_edge"], case["settings"]
    ours, ppo = (ratios(figures, arm) for arm in (PRIMARY[0], "ppo"))
    return (
        f"{count:.0f} of the {of_all:.0f} best settings lie at the edge of what was tried. A run "
        f"of `{PRIMARY[0]}` takes {ours} times the CPU time of `{PRIMARY[1]}`, one of `ppo` {ppo}."
    )


def ratios(figures: Cases, arm: str) -> str:
    """CPU seconds of an arm over those of the base, from the lowest to the highest."""
    spent = [
        [figures[f"{world}/{each}"]["cpu_seconds"] for world in FULL.worlds]
        for each in (arm, PRIMARY[1])
    ]
    low, *_, high = sorted(of_arm / of_base for of_arm, of_base in zip(*spent, strict=True))
    return f"{low:.1f} to {high:.1f}"


def limits(figures: Cases) -> str:
    """What tuning, the key, the critic and the oracle leave open."""
    ours, base = PRIMARY
    later = {arm: list[str]() for _, arm, *_ in FULL.after}
    for world, arm, gamma, rate in FULL.after:
        later[arm].append(apart(figures[f"{world}/{ours} minus {arm}, {gamma:g}, {rate:g}"]))
    rates = [figures[f"webshop/{arm}"]["learning_rate"] for arm in PRIMARY]
    low, *_, high = sorted(round(100 * figures[f"{world}/ppo"]["explained"]) for world in WORLDS)
    textcraft = round(100 * figures[f"{APART}/ppo"]["explained"])
    behind, fallen = [], []
    for world in WORLDS:
        case = between(figures, world, ORACLE, ours)
        if side(case) < 0:
            behind.append(f"{NAMES[world]} ({apart(case)})")
            fallen.append(f"{figures[f'{world}/{ORACLE}']['ended_below_start']:.0f}")
    case = between(figures, "sokoban, clock", *PRIMARY)
    lines = [
        "**Two seeds of tuning** hardly tell neighbouring settings apart. In WebShop, "
        f"`{base}` got a rate of {rates[1]:g}, `{ours}` {rates[0]:g}; in runs that were added "
        f"later, `{ours}` minus `{base}` at {rates[0]:g} is {listed(later[base])} (γ 0.9 and 1).",
        f"**Extra episodes.** The key takes 256 episodes, as many as four iterations. Had `{ours}` "
        f"lost four iterations, its lead over `{base}` with a clock would be "
        f"{apart(case, 'delayed')}.",
        f"**A weak critic.** The critic of `ppo` explains {low} to {high} % of the variance of "
        f"returns ({textcraft} % in TextCraft); a constant explains 0.",
        f"**The oracle is no upper bound.** It was behind `{ours}` in {listed(behind)}, where "
        f"{listed(fallen)} of its 24 runs ended below their start. Tuning gave it a rate of 0.002; "
        f"in Sokoban, in runs that were added later, `{ours}` minus `{ORACLE}` is "
        f"{listed(later[ORACLE])} (rates 0.0005 and 0.001).",
    ]
    return "\n".join(f"- {line}" for line in lines)


def share(case: Case) -> str:
    """How far an arm is on the way from ``grpo`` to the oracle."""
    shown = (round(100 * case[f"share{end}"]) for end in ("", "_low", "_high"))
    return "{} % ({} to {})".format(*shown)


def explained(figures: Cases) -> str:
    """Whether direction or noise goes with the order of the arms, by environment."""
    rows = []
    for world in WORLDS:
        found, arms = {}, ""
        for measured in ("direction", "noise"):
            for name, case in figures.items():
                if name.startswith(f"{world}, {measured}, "):
                    arms = name.split(", ")[-1].removesuffix(" arms")
                    found[measured] = case
        cells = [f"{case['explains']:+.2f} (p {chance(case)})" for case in found.values()]
        said = verdict({name: case["explains"] for name, case in found.items()}) if found else ""
        rows.append([NAMES[world], *(cells or ("–", "–")), arms, said or "not known"])
    head = ["environment", "closer direction", "less noise", "arms", "what explains the order"]
    return markdown(head, rows)


def verdict(found: dict[str, float]) -> str:
    """The protocol's word."""
    for measured, other in (("direction", "noise"), ("noise", "direction")):
        if found[measured] > 0.6 and found[other] <= found[measured] - 0.2:
            return measured
    return "neither alone"


def smollm2(figures: Cases) -> str:
    """What is said of the language model: the gain of each arm, and their difference."""
    contrast = next(case for case in figures if case.endswith(f" minus {GROUPED}"))
    arm = contrast.partition(" ")[0]
    pairs = sum(case.startswith(f"{arm}, seed") and "success" in figures[case] for case in figures)
    said = [gained(figures, each, pairs) for each in (GROUPED, arm)]
    case = figures[contrast]
    if pairs == 1:
        return "\n".join(f"- {each}." for each in [*said, "One pair of runs compares no arms"])
    found = apart(case, "success")
    if sign(case, "success"):
        more = "more" if sign(case, "success") > 0 else "less"
        said.append(
            f"`{arm}` gained {more} than `{GROUPED}`: by {found} in {pairs} pairs of runs of one "
            "model in one environment"
        )
    else:
        said.append(
            f"No difference between the arms was found: {found}; {pairs} pairs do not show that "
            "there is none"
        )
    return "\n".join(f"- {each}." for each in said)


def gained(figures: Cases, arm: str, pairs: int) -> str:
    """What one arm learned, with and without the form of actions."""
    case, name = figures[f"{arm}, gain"], "SmolLM2-135M"
    won = "of its episodes at goals that it never saw"
    if pairs == 1:
        return f"With `{arm}`, {name} won {case['success']:+.3f} {won}, in one run"
    gain, formed = apart(case, "success"), apart(case, "success_if_formed")
    if sign(case, "success") < 0:
        return f"With `{arm}`, {name} won fewer {won}: {gain}, in {pairs} runs"
    if sign(case, "success") == 0:
        return f"With `{arm}`, no gain was found on unseen goals: {gain}, in {pairs} runs"
    said = f"With `{arm}`, {name} won {gain} more {won}, in {pairs} runs; "
    if sign(case, "success_if_formed") > 0:
        return f"{said}also among episodes of well-formed actions alone: {formed}"
    return f"{said}among episodes of well-formed actions alone no gain was found: {formed}"


def sign(case: Case, metric: str) -> int:
    """1 if the interval is above 0, -1 if it is below, 0 if it has it inside."""
    return int(case[f"{metric}_low"] > 0) - int(case[f"{metric}_high"] < 0)


def runs_table(figures: Cases) -> str:
    """A row for the start, and for each run that counts."""
    rows = []
    for name, case in figures.items():
        if name == "start" or ("seed" in name and "success" in case):
            shares = [f"{case[metric]:.3f}" for metric in RUNS]
            spent = [f"{case[m] / 60:.0f}" if m in case else "–" for m in COSTS]
            rows.append([name, *shares, *spent])
    return markdown(["run", *RUNS.values(), *COSTS.values()], rows)


RUNS = {
    "success": "success",
    "well_formed": "well-formed",
    "carried_out": "carried out",
    "success_if_formed": "if formed",
}
COSTS = {"cpu_seconds": "CPU minutes of training"}


def filled(text: str) -> str:
    """A page with what is committed, where it has a place for it."""
    figures = read(RESULTS / "sceptic.jsonl")
    if any(figures[f"{world}/{GROUPED}"]["seeds"] < len(FULL.seeds) for world in FULL.worlds):
        raise SystemExit("the runs are not finished: the page says nothing of fewer seeds")
    blocks = {"sceptic": paragraph(figures), "sceptic table": table(figures)}
    blocks["sceptic opening"] = opening(figures)
    blocks["sceptic tuning"] = tuning(figures)
    blocks["sceptic limits"] = limits(figures)
    if (RESULTS / "sceptic_gradients.jsonl").exists():
        blocks["gradients"] = explained(read(RESULTS / "sceptic_gradients.jsonl"))
    if (RESULTS / "sceptic_smollm2.jsonl").exists():
        trained = read(RESULTS / "sceptic_smollm2.jsonl")
        blocks["smollm2"] = f"{smollm2(trained)}\n\n{runs_table(trained)}"
    blocks = {name: block for name, block in blocks.items() if f"<!-- begin: {name} -->" in text}
    return fill_page(text, {name: f"{block}\n" for name, block in blocks.items()})


if __name__ == "__main__":
    for path in (PAGE, *QUOTING):
        path.write_text(filled(path.read_text(encoding="utf-8")), encoding="utf-8")
