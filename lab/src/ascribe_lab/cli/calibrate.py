"""``ascribe calibrate``: layer, pooling and radius for a model."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, NoReturn

import numpy as np
import typer
from rich import box
from rich.table import Table
from rich.text import Text
from typer import Option

from ascribe.cli import options, screen
from ascribe.cli.plain import tell_error
from ascribe.engines.capture import decoder_blocks
from ascribe.steps.hints import unknown
from ascribe.steps.problems import TableError
from ascribe.steps.table import KNOWN_COLUMNS
from ascribe_lab.calibrate import FINER, Calibration
from ascribe_lab.calibrate.choose import healthy, objection
from ascribe_lab.calibrate.rollouts import POOLINGS, CalibrationRows, calibrate_model, select_rows
from ascribe_lab.calibrate.setting import Setting, record, write_setting
from ascribe_lab.models.loading import DTYPES, load_causal_lm, load_smollm2, packages


def calibrate(
    file: options.File,
    model: Annotated[str, Option(help="Folder of a Hugging Face model (safetensors), or smollm2.")],
    out: Annotated[Path, Option("--out", "-o", help="Folder to write calibration.yaml to.")],
    layers: Annotated[
        str | None, Option(help="Layers to try, counted from 0: 4,8,12. Default: ten of them.")
    ] = None,
    poolings: Annotated[
        str, Option(help="Ways of pooling tokens into one vector, to try.")
    ] = "last,mean,attention",
    radii: Annotated[
        str, Option(help="Radii of clusters at which layers are compared.")
    ] = "0.05,0.10,0.15,0.20",
    text_column: Annotated[
        str | None,
        Option(help="Column with the text that the model reads. Default: prompt, else state."),
    ] = None,
    chat: Annotated[
        bool, Option("--chat", help="Put each text into the chat template of the model.")
    ] = False,
    max_rows: Annotated[
        int, Option(help="Approximate number of rows to use; 0 for all.", min=0)
    ] = 600,
    max_tokens: Annotated[
        int, Option(help="Number of tokens to read at the end of each text.", min=1)
    ] = 1024,
    dtype: Annotated[
        str, Option(help=f"Data type to compute in: {', '.join(DTYPES)}.")
    ] = "float32",
    seed: Annotated[int, Option(help="Random seed of the folds of the probe.", min=0)] = 0,
    as_json: options.Json = False,
    _quiet: options.Quiet = False,
) -> None:
    """Choose the layer, the pooling and the radius of fingerprints for a model.

    Reads rollouts with the column family, and writes calibration.yaml, which training reads.
    Recipes that compare states by fingerprints use it, such as those of BiPACE.

    Examples:
        ascribe calibrate played.parquet --model smollm2 -o calibration
    """
    layer_indices = _numbers(layers, "--layers", int) if layers else None
    scanned = _numbers(radii, "--radii", float)
    if min(scanned) <= 0 or max(scanned) > 2:
        screen.wrong_call("--radii takes cosine distances above 0 and up to 2")
    names = [name.strip() for name in poolings.split(",")]
    if wrong := [name for name in names if name not in POOLINGS]:
        screen.wrong_call(unknown("pooling", wrong[0], POOLINGS))
    with screen.written(out):
        out.mkdir(parents=True, exist_ok=True)
    wanted = {*KNOWN_COLUMNS, text_column or "prompt"}
    rollouts = screen.open_rollouts(file, wanted=wanted.__contains__)
    columns = ["state", *rollouts.carried.column_names]
    column = text_column or ("prompt" if "prompt" in columns else "state")
    if column not in columns:
        others = "".join(f"; {screen.safe(note.detail)}" for note in rollouts.notes)
        screen.wrong_call(f"there is no column '{screen.safe(column)}' to read{others}")
    try:
        with screen.exits(file):
            selected = select_rows(rollouts, column, max_rows or None)
    except TableError:
        raise
    except ValueError as error:
        _refuse(str(error), file, as_json=as_json)
    actor, tokenizer = _load(model, dtype)
    blocks = len(decoder_blocks(actor)[1])
    if chat and not tokenizer.chat_template:
        screen.wrong_call("the tokenizer has no chat template", "leave out --chat")
    try:
        with screen.progress("calibrating") as report:
            calibration = calibrate_model(
                selected,
                actor,
                tokenizer,
                np.random.default_rng(seed),
                layers=layer_indices,
                poolings=[pooling for pooling in POOLINGS if pooling in names],
                radii=scanned,
                chat=chat,
                most_tokens=max_tokens,
                report=report,
            )
    except IndexError as error:
        screen.wrong_call(str(error))
    except ValueError as error:
        _refuse(str(error), file, as_json=as_json)
    setting = Setting(
        model=model,
        blocks=blocks,
        layer=calibration.layer,
        pooling=calibration.pooling,
        radius=calibration.radius,
        text_column=column,
        chat=chat,
        most_tokens=max_tokens,
        dtype=dtype,
    )
    used = _rows_used(file, selected, calibration)
    with screen.written(out):
        write_setting(out / "calibration.yaml", setting, calibration, rollouts=used, seed=seed)
    if as_json:
        document = {"setting": asdict(setting), "rollouts": used, **record(calibration)}
        screen.print_json({"file": str(file), "out": str(out), "refused": False, **document})
        return
    _print(calibration, selected, blocks, out)


def _numbers(text: str, option: str, kind: Any) -> list[Any]:
    try:
        return sorted({kind(item) for item in text.split(",")})
    except ValueError:
        screen.wrong_call(
            f"{option} takes numbers with commas between them, not '{screen.safe(text)}'"
        )


def _load(name: str, dtype: str) -> tuple[Any, Any]:
    try:
        packages("actor")[1].utils.logging.disable_progress_bar()
        return load_smollm2(dtype) if name == "smollm2" else load_causal_lm(name, dtype)
    except (ImportError, OSError, ValueError) as error:
        screen.wrong_call(f"cannot load the model: {screen.safe(error, 300)}")


def _refuse(reason: str, file: Path, *, as_json: bool) -> NoReturn:
    """Print why these rollouts give no calibration, and exit with code 1."""
    if as_json:
        screen.print_json({"file": str(file), "refused": True, "detail": reason})
    else:
        tell_error(f"{screen.safe(reason, 400)}, {screen.safe(file)}")
    raise typer.Exit(1)


def _rows_used(file: Path, selected: CalibrationRows, calibration: Calibration) -> dict[str, Any]:
    return {
        "file": file.name,
        "rows": selected.all_rows,
        "rows_read": int(selected.texts.size),
        "trajectories_read": selected.trajectories,
        "rows_clustered": calibration.rows,
        "groups_clustered": calibration.groups,
        "rows_probed": calibration.probed,
        "families": list(selected.families),
    }


def _print(calibration: Calibration, selected: CalibrationRows, blocks: int, out: Path) -> None:
    if selected.texts.size < selected.all_rows:
        note = (
            f"Used {selected.texts.size:,} of {selected.all_rows:,} rows, of "
            f"{selected.trajectories:,} trajectories: {calibration.groups} whole groups to "
            f"cluster, {calibration.probed:,} rows of all groups to probe. "
            "Use more with --max-rows."
        )
        screen.print_summary(note)
    screen.out.print(_table(calibration))
    if len(calibration.decided_at) == 1 and calibration.decided_at[0] in FINER:
        note = f"No layer is healthy at a larger radius than {calibration.decided_at[0]:g}."
        screen.out.print(Text(note, style="yellow"))
    clusters = calibration.clusters
    summary = Table(show_header=False)
    summary.add_row(
        "layer", f"{calibration.layer} of {blocks} ({calibration.layer - blocks} from the end)"
    )
    summary.add_row("pooling", calibration.pooling)
    summary.add_row("radius", f"{calibration.radius:.4g}")
    summary.add_row("median rows of a cluster", f"{calibration.search.median:g}")
    summary.add_row("clusters with one row", f"{clusters.singleton_share:.1%}")
    summary.add_row("rows alone in their cluster", f"{clusters.singleton_share_of_rows:.1%}")
    screen.out.print(summary)
    if not calibration.search.in_range:
        target = calibration.target
        note = (
            f"No radius gives a median cluster of {target.smallest:g} to {target.largest:g} rows; "
            "this one came closest."
        )
        screen.out.print(Text(note, style="yellow"))
    screen.print_wrote(out / "calibration.yaml")


def _table(calibration: Calibration) -> Table:
    """The scan: for each layer and pooling the probe, and the clusters at the chosen radius."""
    title = Text(f"Clusters at radius {calibration.radius:.4g}")
    table = Table(box=box.SIMPLE_HEAD, title=title, padding=(0, 1, 0, 0), pad_edge=False)
    for heading in ("layer", "pooling"):
        table.add_column(heading)
    for heading in ("probe", "clusters", "one row", "median"):
        table.add_column(heading, justify="right")
    table.add_column(f"at radius {calibration.decided_at[0]:g}")
    for index, (scan, at) in enumerate(zip(calibration.scans, calibration.at_radius, strict=True)):
        qualified = healthy(scan, calibration.decided_at)
        compared = next(p for p in scan.partitions if p.radius == calibration.decided_at[0])
        table.add_row(
            str(scan.layer),
            scan.pooling,
            f"{scan.probe.accuracy:.2f} ± {scan.probe.deviation:.2f}",
            f"{at.clusters:,}",
            f"{at.singleton_share:.1%}",
            f"{at.median_size:g}",
            "healthy" if qualified else objection(compared),
            style="bold green" if index == calibration.index else "" if qualified else "dim",
        )
    return table
