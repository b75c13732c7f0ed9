"""Fill ``docs/learning.md``, and the pages that quote it, from the committed results.

    python benchmarks/sceptic_page.py

The sentences are those that ``benchmarks/sceptic_protocol.md`` has for each outcome.
"""

from common import RESULTS, ROOT, fill_page
from learning_page import Case, Cases, chance, read, value
from sceptic import ARMS, FULL, GROUPED, ORACLE, PLACES, PRIMARY

from ascribe_lab.audit.report import markdown

PAGE = ROOT / "docs" / "learning.md"
QUOTING = (ROOT / "README.md", ROOT / "docs" / "howto" / "recipe.md")
LEVEL = 0.01
"""With a clock, "level" means within so much."""
APART = "textcraft"
NAMES = {
    "sokoban, unseen rooms": "Sokoban, rooms that were not trained on",
    "webshop": "WebShop, goals that were not trained on",
    "sokoban, clock": "Sokoban with a clock in every text",
    "sokoban, two boxes": "Sokoban with two boxes and one reward at the end",
    APART: "TextCraft, where `sbc` was developed",
}


def side(case: Case) -> int:
    """1 if the first arm is ahead, -1 if it is behind, 0 if neither was found."""
    if case.get("holm", case["p"]) >= 0.05:
        return 0
    return 1 if case["difference"] > 0 else -1


def between(figures: Cases, world: str, first: str, second: str) -> Case:
    """The contrast of two arms in an environment."""
    return figures[f"{world}/{first} minus {second}"]


def primary(figures: Cases, world: str) -> str:
    """What is said of the primary contrast in an environment."""
    case = between(figures, world, *PRIMARY)
    apart, (ours, base) = value(case, "difference"), PRIMARY
    if side(case):
        speed = "faster" if side(case) > 0 else "more slowly"
        said = f"`{ours}` learned {speed} than tuned `{base}`: {apart}"
    elif PLACES[world].keyed and case["difference_low"] > -LEVEL:
        within = case["difference_high"] < LEVEL
        said = f"`{ours}` and tuned `{base}` are level{'' if within else ' or better'}: {apart}"
    else:
        bound = max(-case["difference_low"], case["difference_high"])
        said = f"no difference was found between `{ours}` and tuned `{base}`, {apart}; "
        said += f"differences above {bound:.3f} are ruled out"
    if PLACES[world].oracle and f"{world}/{ORACLE} minus {GROUPED}" in figures:
        gap = figures[f"{world}/{ORACLE} minus {GROUPED}"]
        if gap["gap_low"] <= 0:
            said += ". Credit does not matter here within what these runs can see"
    for arm in ("value", "ppo"):
        case = between(figures, world, ours, arm)
        if side(case) < 0:
            said += f"; `{arm}` was ahead of `{ours}` by {-case['difference']:.3f}"
    return said


def others(figures: Cases, world: str) -> list[str]:
    """What is said of clusters and of the memory."""
    clusters = between(figures, world, "bipace_q", "gigpo")
    speed = {1: "faster than", -1: "more slowly than", 0: "neither found faster nor slower than"}
    said = "clusters of hidden states (`bipace_q`) learned " if side(clusters) else ""
    said += "" if said else "clusters of hidden states (`bipace_q`) were "
    said += f"{speed[side(clusters)]} equal texts (`gigpo`), {value(clusters, 'difference')}"
    memory = between(figures, world, "sbc, memory", "sbc")
    verb = {1: "gained", -1: "cost", 0: "made no difference that was found:"}[side(memory)]
    return [said, f"the memory {verb} {value(memory, 'difference')}"]


def opening(figures: Cases) -> str:
    """The primary contrast over environments, in one sentence."""
    ours, base = PRIMARY
    sides = {world: side(between(figures, world, *PRIMARY)) for world in FULL.worlds}
    parts = []
    for sign, said in ((1, "faster than"), (-1, "more slowly than"), (0, "not found apart from")):
        places = [NAMES[world] for world, found in sides.items() if found == sign]
        if places:
            parts.append(f"{said} tuned `{base}` in {len(places)} ({'; '.join(places)})")
    return f"**Of {len(sides)} environments, `{ours}` learned {', and '.join(parts)}.**"


def paragraph(figures: Cases) -> str:
    """The answer, and a line for each environment."""
    lines = [
        f"- *{NAMES[world]}*: {'; '.join([primary(figures, world), *others(figures, world)])}."
        for world in FULL.worlds
    ]
    return "\n".join([opening(figures), "", *lines])


def table(figures: Cases) -> str:
    """A row for each environment."""
    arms = [arm for arm in ARMS if arm not in (GROUPED, ORACLE)]
    head = ["environment", "`sbc` minus `returns`", "p", "found with a power of .9"]
    head += ["`grpo`", "`oracle`", *(f"`{arm}`" for arm in arms)]
    rows = []
    for world in FULL.worlds:
        case = between(figures, world, *PRIMARY)
        ends = (figures.get(f"{world}/{arm}", {}) for arm in (GROUPED, ORACLE))
        row = [NAMES[world], value(case, "difference"), chance(case), f"{case['detectable']:.3f}"]
        row += [f"{end['auc']:.3f}" if end else "–" for end in ends]
        rows.append([*row, *(share(figures[f"{world}/{arm}"]) for arm in arms)])
    return markdown(head, rows)


def share(case: Case) -> str:
    """How far an arm is on the way to the oracle; its AUC where there is none."""
    if "share" not in case:
        return f"AUC {case['auc']:.3f}"
    shown = (f"{100 * case[f'share{end}']:.0f}" for end in ("", "_low", "_high"))
    return "{} % ({} to {})".format(*shown)


def explained(figures: Cases) -> str:
    """Whether direction or noise goes with the order of the arms, by environment."""
    rows = []
    for world in FULL.worlds:
        found = {
            measured: case["explains"]
            for name, case in figures.items()
            for measured in ("direction", "noise")
            if name.startswith(f"{world}, {measured}")
        }
        if len(found) > 1:
            rows.append(
                [NAMES[world], *(f"{each:+.2f}" for each in found.values()), verdict(found)]
            )
    return markdown(["environment", "direction", "noise", "what explains the order"], rows)


def verdict(found: dict[str, float]) -> str:
    """The protocol's word."""
    for measured, other in (("direction", "noise"), ("noise", "direction")):
        if found[measured] > 0.6 and found[other] <= found[measured] - 0.2:
            return measured
    return "neither alone"


def filled(text: str) -> str:
    """A page with what is committed, where it has a place for it."""
    figures = read("sceptic")
    blocks = {"sceptic": paragraph(figures), "sceptic table": table(figures)}
    if (RESULTS / "sceptic_gradients.jsonl").exists():
        blocks["gradients"] = explained(read("sceptic_gradients"))
    blocks = {name: block for name, block in blocks.items() if f"<!-- begin: {name} -->" in text}
    return fill_page(text, {name: f"{block}\n" for name, block in blocks.items()})


if __name__ == "__main__":
    for path in (PAGE, *QUOTING):
        path.write_text(filled(path.read_text(encoding="utf-8")), encoding="utf-8")
