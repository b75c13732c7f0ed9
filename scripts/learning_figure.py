"""Draw how SmolLM2-135M learned: training by iteration, goals held out at start and end.

    python scripts/learning_figure.py

Reads learning_smollm2_ENGINE.jsonl and learning_smollm2_ENGINE/curve.jsonl of both engines in
experiments/learning_first/results, which learning_smollm2.py writes there, and writes
docs/figures/learning_smollm2.svg. Needs the extra figures.
"""

from figures import BLUE, RED, new_figure, read, save

NAME = "learning_smollm2"
ENGINES = {"trl": ("TRL", BLUE, -0.05), "verl": ("verl", RED, 0.05)}


def main() -> None:
    """Training on the left, held out on the right."""
    figure = new_figure(8.0, 3.4)
    training, held_out = figure.subplots(1, 2, sharey=True, width_ratios=(3, 2))
    for engine, (label, colour, offset) in ENGINES.items():
        lines = read("learning_first", f"{NAME}_{engine}/curve.jsonl")
        iterations = [line["iteration"] for line in lines]
        won = [line["success"] for line in lines]
        invalid = [line["invalid_share"] for line in lines]
        training.plot(iterations, won, "o-", color=colour, ms=3, label=f"{label}: episodes won")
        training.plot(
            iterations, invalid, ":", color=colour, lw=1.4, label=f"{label}: invalid actions"
        )
        ends = [held(engine, end) for end in ("start", "end")]
        middle = [end["success"] for end in ends]
        error = [
            [end["success"] - end["success_low"] for end in ends],
            [end["success_high"] - end["success"] for end in ends],
        ]
        places = [offset, 1 + offset]
        held_out.errorbar(
            places, middle, yerr=error, fmt="o-", color=colour, capsize=4, label=label
        )
    training.legend(frameon=False, loc="upper left", ncols=2, fontsize="small")
    training.set(title="training", xlabel="iteration", ylabel="share")
    held_out.set(title="60 goals held out", xlim=(-0.4, 1.4), ylim=(0, 1))
    held_out.set_xticks([0, 1], ["start", "end"])
    held_out.legend(frameon=False, loc="lower right")
    for panel in (training, held_out):
        panel.grid(alpha=0.3)
    save(figure, NAME)


def held(engine: str, end: str) -> dict[str, float]:
    """The figures of one evaluation."""
    lines = read("learning_first", f"{NAME}_{engine}.jsonl")[1:]
    return {
        line["metric"]: line["value"]
        for line in lines
        if line["case"].startswith(f"{engine}, {end},")
    }


if __name__ == "__main__":
    main()
