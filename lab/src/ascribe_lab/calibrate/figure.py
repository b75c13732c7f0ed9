"""The calibration as a figure: probe and singletons by layer, cluster size by radius."""

from importlib import import_module
from pathlib import Path
from typing import Any

from ascribe.steps.atomic import replacing
from ascribe_lab.calibrate.choose import Calibration, healthy, objection
from ascribe_lab.extras import install

STYLES = {"last": ("#0072B2", "o"), "mean": ("#D55E00", "s"), "attention": ("#009E73", "^")}
"""Colours that colour-blind readers can distinguish, and shapes that differ without colour."""

GREY = "#555555"


def draw(calibration: Calibration, folder: Path, title: str) -> list[Path]:
    """Write ``calibration.png`` and ``calibration.svg``.

    Args:
        calibration: the calibration.
        folder: where to write.
        title: the model, the data and the result, for the heading.

    Raises:
        ImportError: without the extra ``figures``.
    """
    matplotlib = matplotlib_module()
    figure = matplotlib.figure.Figure(figsize=(13, 4.6), layout="constrained")
    figure.get_layout_engine().set(wspace=0.06)
    panels = figure.subplots(1, 3)
    _by_layer(panels[:2], calibration)
    _by_radius(panels[2], calibration)
    for panel in panels:
        panel.spines[["top", "right"]].set_visible(False)
        panel.grid(axis="y", color="0.92")
        panel.set_axisbelow(True)
    # A dollar sign in a name would begin a formula.
    figure.suptitle(title.replace("$", r"\$"), x=0.01, ha="left", fontsize=11)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower left", ncols=len(labels), frameon=False)
    paths = [folder / "calibration.png", folder / "calibration.svg"]
    with replacing(paths[0]) as file:
        figure.savefig(file, format="png", dpi=150)
    # Without a date and with fixed ids, the same calibration gives the same file.
    with matplotlib.rc_context({"svg.hashsalt": "ascribe"}), replacing(paths[1]) as file:
        figure.savefig(file, format="svg", metadata={"Date": None})
    return paths


def matplotlib_module() -> Any:
    """Matplotlib, or an error that names the extra that brings it.

    Figures made without ``pyplot`` are drawn by Agg, without a screen.
    """
    try:
        import_module("matplotlib.figure")
        return import_module("matplotlib")
    except ImportError as error:
        raise ImportError(f"needs matplotlib; {install('figures')}") from error


def _by_layer(panels: Any, calibration: Calibration) -> None:
    """Probe accuracy on the left, singletons at the chosen radius on the right, by pooling."""
    left, right = panels
    for pooling, (colour, _) in STYLES.items():
        pairs = zip(calibration.scans, calibration.at_radius, strict=True)
        scanned = [(scan, clusters) for scan, clusters in pairs if scan.pooling == pooling]
        if not scanned:
            continue
        layers = [scan.layer for scan, _ in scanned]
        probes = [scan.probe for scan, _ in scanned]
        low = [probe.accuracy - probe.deviation for probe in probes]
        high = [probe.accuracy + probe.deviation for probe in probes]
        left.fill_between(layers, low, high, color=colour, alpha=0.1, linewidth=0)
        fine = [bool(healthy(scan, calibration.decided_at)) for scan, _ in scanned]
        _line(left, layers, [probe.accuracy for probe in probes], fine, pooling)
        shares = [clusters.singleton_share for _, clusters in scanned]
        fine = [not objection(clusters) for _, clusters in scanned]
        _line(right, layers, shares, fine, pooling)
    chance = calibration.chosen.probe.chance
    left.axhline(chance, color=GREY, linestyle=":", linewidth=1)
    first_layer = min(scan.layer for scan in calibration.scans)
    left.text(first_layer, chance + 0.01, "chance", color=GREY, va="bottom", fontsize=8)
    left.set_ylim(0, 1.04)
    left.set_title("Does the layer predict the family of the task?", fontsize=10, loc="left")
    radii = ", ".join(f"{radius:g}" for radius in calibration.decided_at)
    left.set_xlabel(f"layer (hollow: not healthy at radius {radii})")
    left.set_ylabel("probe accuracy on unseen tasks")
    highest = max(clusters.singleton_share for clusters in calibration.at_radius)
    right.set_ylim(-0.02, min(1.04, max(0.3, 1.15 * highest)))
    right.set_title("How many clusters have one row?", fontsize=10, loc="left")
    right.set_xlabel(f"layer (hollow: not healthy at radius {calibration.radius:.3g})")
    right.set_ylabel("share of clusters with one row")
    _mark(left, calibration.layer, calibration.chosen.probe.accuracy)
    _mark(right, calibration.layer, calibration.clusters.singleton_share)


def _line(
    panel: Any, layers: list[int], heights: list[float], fine: list[bool], pooling: str
) -> None:
    """A line whose marks are filled where clusters are healthy, and hollow where they are not."""
    colour, shape = STYLES[pooling]
    panel.plot(layers, heights, color=colour, marker=shape, ms=5, label=f"pooling: {pooling}")
    for x, y, is_fine in zip(layers, heights, fine, strict=True):
        if not is_fine:
            panel.plot(x, y, color=colour, marker=shape, ms=5, mfc="white")


def _mark(panel: Any, x: float, y: float) -> None:
    """A star at the choice."""
    panel.axvline(x, color=GREY, linestyle="--", linewidth=1, zorder=0)
    panel.plot(x, y, marker="*", ms=15, color=GREY, mfc="gold", linestyle="", zorder=5)


def _by_radius(panel: Any, calibration: Calibration) -> None:
    colour, shape = STYLES[calibration.pooling]
    target = calibration.target
    sizes = {clusters.radius: clusters.median_size for clusters in calibration.chosen.partitions}
    sizes |= dict(calibration.search.probes)
    radii = sorted(sizes)
    panel.axhspan(target.smallest, target.largest, color="#F0E442", alpha=0.4, linewidth=0)
    middle = (target.smallest * target.largest) ** 0.5
    panel.text(radii[0], middle, "target", va="center", fontsize=8)
    panel.plot(radii, [sizes[radius] for radius in radii], color=colour, marker=shape, ms=5)
    _mark(panel, calibration.radius, calibration.search.median)
    panel.set_xscale("log")
    panel.set_yscale("log", base=2)
    title = f"How large are clusters? Layer {calibration.layer}, {calibration.pooling}"
    panel.set_title(title, fontsize=10, loc="left")
    panel.set_xlabel("radius (cosine distance)")
    panel.set_ylabel("median rows of a cluster")
    panel.xaxis.set_major_formatter("{x:g}")
    panel.yaxis.set_major_formatter("{x:g}")
