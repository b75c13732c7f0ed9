"""The calibration as a picture: probe and singletons by layer, cluster size by radius."""

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from ascribe.calibrate import Calibration
from ascribe.calibrate.scan import Partition, Slice

STYLES = {"last": ("#0072B2", "o"), "mean": ("#D55E00", "s"), "attention": ("#009E73", "^")}
"""Colours that differ also for colour-blind eyes, and shapes that differ without colour."""

GREY = "#555555"


def draw(found: Calibration, folder: Path, title: str) -> list[Path]:
    """Write ``calibration.png`` and ``calibration.svg``.

    Args:
        found: the calibration.
        folder: where to write.
        title: what was calibrated, and on what.

    Raises:
        ImportError: without the extra ``figures``.
    """
    matplotlib = matplotlib_module()
    figure = matplotlib.figure.Figure(figsize=(13, 4.6), layout="constrained")
    figure.get_layout_engine().set(wspace=0.06)
    panels = figure.subplots(1, 3)
    _probe(panels[0], found)
    _singletons(panels[1], found)
    _size(panels[2], found)
    for panel in panels:
        panel.spines[["top", "right"]].set_visible(False)
        panel.grid(axis="y", color="0.92")
        panel.set_axisbelow(True)
    # A dollar sign in a name would begin a formula.
    figure.suptitle(title.replace("$", r"\$"), x=0.01, ha="left", fontsize=11)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower left", ncols=len(labels), frameon=False)
    paths = [folder / "calibration.png", folder / "calibration.svg"]
    figure.savefig(paths[0], dpi=150)
    # Without a date and with names that do not change, the same calibration gives the same file.
    with matplotlib.rc_context({"svg.hashsalt": "ascribe"}):
        figure.savefig(paths[1], metadata={"Date": None})
    return paths


def matplotlib_module() -> Any:
    """Matplotlib, drawing without a screen, or an error that names the extra that brings it.

    Figures that are made without ``pyplot`` are drawn by Agg, whatever the screen.
    """
    try:
        import_module("matplotlib.figure")
        return import_module("matplotlib")
    except ImportError as error:
        raise ImportError("needs matplotlib; pip install 'ascribe[figures]'") from error


def _by_pooling(found: Calibration) -> Iterator[tuple[str, list[Slice], list[Partition]]]:
    for pooling in STYLES:
        kept = [n for n, each in enumerate(found.slices) if each.pooling == pooling]
        if kept:
            yield pooling, [found.slices[n] for n in kept], [found.at_radius[n] for n in kept]


def _probe(panel: Any, found: Calibration) -> None:
    for pooling, slices, _ in _by_pooling(found):
        colour, _ = STYLES[pooling]
        layers = [each.layer for each in slices]
        accuracy = [each.probe.accuracy for each in slices]
        low = [each.probe.accuracy - each.probe.deviation for each in slices]
        high = [each.probe.accuracy + each.probe.deviation for each in slices]
        panel.fill_between(layers, low, high, color=colour, alpha=0.1, linewidth=0)
        healthy = [bool(found.rule.healthy(each, found.decided_at)) for each in slices]
        _line(panel, layers, accuracy, healthy, pooling)
    chance = found.chosen.probe.chance
    panel.axhline(chance, color=GREY, linestyle=":", linewidth=1)
    at = min(each.layer for each in found.slices)
    panel.text(at, chance + 0.01, "chance", color=GREY, va="bottom", fontsize=8)
    _mark_layer(panel, found, found.chosen.probe.accuracy)
    panel.set_ylim(0, 1.04)
    panel.set_title("Does the layer know the family of the task?", fontsize=10, loc="left")
    radii = ", ".join(f"{radius:g}" for radius in found.decided_at)
    panel.set_xlabel(f"layer (hollow: not healthy at radius {radii})")
    panel.set_ylabel("probe accuracy on unseen tasks")


def _singletons(panel: Any, found: Calibration) -> None:
    for pooling, slices, partitions in _by_pooling(found):
        layers = [each.layer for each in slices]
        shares = [each.singleton_share for each in partitions]
        healthy = [not found.rule.objection(each) for each in partitions]
        _line(panel, layers, shares, healthy, pooling)
    _mark_layer(panel, found, found.clusters.singleton_share)
    highest = max(each.singleton_share for each in found.at_radius)
    panel.set_ylim(-0.02, min(1.04, max(0.3, 1.15 * highest)))
    panel.set_title("How many clusters have one row?", fontsize=10, loc="left")
    panel.set_xlabel(f"layer (hollow: not healthy at radius {found.radius:.3g})")
    panel.set_ylabel("share of clusters with one row")


def _line(
    panel: Any, layers: list[int], heights: list[float], healthy: list[bool], pooling: str
) -> None:
    """A line with filled marks where clusters are healthy, and hollow ones where they are not."""
    colour, shape = STYLES[pooling]
    panel.plot(layers, heights, color=colour, marker=shape, ms=5, label=f"pooling: {pooling}")
    hollow = [(x, y) for x, y, fine in zip(layers, heights, healthy, strict=True) if not fine]
    for x, y in hollow:
        panel.plot(x, y, color=colour, marker=shape, ms=5, mfc="white")


def _mark_layer(panel: Any, found: Calibration, height: float) -> None:
    panel.axvline(found.layer, color=GREY, linestyle="--", linewidth=1, zorder=0)
    panel.plot(
        found.layer, height, marker="*", ms=15, color=GREY, mfc="gold", linestyle="", zorder=5
    )


def _size(panel: Any, found: Calibration) -> None:
    colour, shape = STYLES[found.pooling]
    target = found.target
    seen = {each.radius: each.median_size for each in found.chosen.partitions}
    seen |= dict(found.found.probes)
    radii = sorted(seen)
    panel.axhspan(target.smallest, target.largest, color="#F0E442", alpha=0.4, linewidth=0)
    panel.text(
        radii[0], (target.smallest * target.largest) ** 0.5, "target", va="center", fontsize=8
    )
    panel.plot(radii, [seen[radius] for radius in radii], color=colour, marker=shape, ms=5)
    panel.axvline(found.radius, color=GREY, linestyle="--", linewidth=1, zorder=0)
    panel.plot(
        found.radius, found.found.median, marker="*", ms=15, color=GREY, mfc="gold", zorder=5
    )
    panel.set_xscale("log")
    panel.set_yscale("log", base=2)
    panel.set_title(
        f"How large are clusters? Layer {found.layer}, {found.pooling}", fontsize=10, loc="left"
    )
    panel.set_xlabel("radius (cosine distance)")
    panel.set_ylabel("median rows of a cluster")
    panel.xaxis.set_major_formatter("{x:g}")
    panel.yaxis.set_major_formatter("{x:g}")
