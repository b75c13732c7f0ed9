"""Draw how SmolLM2-135M learned: training by iteration, goals held out at start and end.

    python scripts/learning_figure.py trl
    python scripts/learning_figure.py verl

Reads benchmarks/results/learning_ENGINE.jsonl and learning_ENGINE/curve.jsonl, which
benchmarks/learning_ENGINE.py writes, and writes docs/figures/learning_ENGINE.svg. Needs
the extra figures.
"""

import sys

from figures import BLUE, RED, Line, new_figure, read, save

COLOURS = {"depth 1": BLUE, "depth 2": RED}


def main() -> None:
    """Read the results and draw them."""
    name = f"learning_{sys.argv[1]}"
    draw(name, read(f"{name}/curve.jsonl"), read(f"{name}.jsonl")[1:])


def draw(name: str, lines: list[Line], figures: list[Line]) -> None:
    """Training on the left, held out on the right."""
    figure = new_figure(8.0, 3.4)
    training, held_out = figure.subplots(1, 2, sharey=True, width_ratios=(3, 2))
    iterations = [line["iteration"] for line in lines]
    training.plot(iterations, [line["success"] for line in lines], "o-", color="#555555", ms=3)
    training.plot(
        iterations, [line["invalid_share"] for line in lines], ":", color="#555555", lw=1.4
    )
    training.legend(["episodes won", "actions that are invalid"], frameon=False, loc="upper right")
    training.set(title="training", xlabel="iteration", ylabel="share")
    for offset, (family, colour) in zip((-0.05, 0.05), COLOURS.items(), strict=True):
        ends = [values(figures, end, family) for end in ("start", "end")]
        if not all(ends):  # not every run has goals of this depth
            continue
        middle = [end["success"] for end in ends]
        error = [
            [end["success"] - end["success_low"] for end in ends],
            [end["success_high"] - end["success"] for end in ends],
        ]
        held_out.errorbar(
            [offset, 1 + offset],
            middle,
            yerr=error,
            fmt="o-",
            color=colour,
            capsize=4,
            label=family,
        )
    held_out.set(title="goals held out", xlim=(-0.4, 1.4), ylim=(0, 1))
    held_out.set_xticks([0, 1], ["start", "end"])
    held_out.legend(frameon=False)
    for panel in (training, held_out):
        panel.grid(alpha=0.3)
    save(figure, name)


def values(figures: list[Line], name: str, family: str) -> dict[str, float]:
    """The figures of one end and one depth, by metric."""
    case = f"{name}, {family},"
    return {one["metric"]: one["value"] for one in figures if one["case"].startswith(case)}


if __name__ == "__main__":
    main()
