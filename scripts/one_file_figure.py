"""Draw the learning curves of the one-file example: success of held-out and of training episodes.

Reads experiments/one_file/results/one_file/curve.jsonl, which one_file.py writes there, and writes
docs/figures/one_file.svg. Needs the extra figures.
"""

from collections import defaultdict

from figures import BLUE, RED, Line, new_figure, read, save

Runs = dict[str, dict[int, list[Line]]]


def main() -> None:
    """Read the curves and draw them."""
    runs: Runs = defaultdict(lambda: defaultdict(list))
    for line in read("one_file", "one_file/curve.jsonl"):
        runs[line["recipe"]][line["seed"]].append(line)
    draw(runs)


def points(lines: list[Line], name: str) -> tuple[list[int], list[float]]:
    """Iterations and values of the lines that have this value."""
    has = [line for line in lines if name in line]
    return [line["iteration"] for line in has], [line[name] for line in has]


def draw(runs: Runs) -> None:
    """One panel for each recipe: thin for training, thick for held-out episodes, by seed."""
    figure = new_figure(4.2 * len(runs), 3.4)
    panels = figure.subplots(1, len(runs), sharey=True, squeeze=False)[0]
    pairs = zip(panels, (BLUE, RED), runs.items(), strict=True)
    for panel, colour, (recipe, by_seed) in pairs:
        for number, lines in enumerate(by_seed.values()):
            trained = "training, 64 episodes" if number == 0 else None
            tested = "held out, 128 episodes" if number == 0 else None
            panel.plot(*points(lines, "success"), color=colour, alpha=0.35, lw=1, label=trained)
            panel.plot(
                *points(lines, "held_out_success"), "o-", color=colour, ms=4, lw=1.6, label=tested
            )
        panel.set(title=f"{recipe}, {len(by_seed)} seeds", xlabel="iteration", ylim=(0, 1))
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("share of episodes that succeed")
    panels[-1].legend(loc="lower right", frameon=False)
    save(figure, "one_file")


if __name__ == "__main__":
    main()
