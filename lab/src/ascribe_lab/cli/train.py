"""``ascribe train``: reinforcement learning by a config."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

from rich.table import Table
from rich.text import Text
from typer import Argument, Option

from ascribe.cli import options, screen
from ascribe.cli.plain import tell_error
from ascribe.engines.metrics import NAME as METRICS
from ascribe.engines.metrics import evaluation_summary, read_metrics
from ascribe.steps.hints import page, unknown
from ascribe_lab.rollout.episode import RolloutFailedError
from ascribe_lab.train.config import Config, ConfigError, known_keys, leaves
from ascribe_lab.train.launch import ENGINES, check_config, is_first_process
from ascribe_lab.train.launch import train as run
from ascribe_lab.train.load import LoadedConfig, load_config
from ascribe_lab.train.resolve import MODEL, EngineError
from ascribe_lab.train.tiny import tiny_config

STYLES = {"default": "dim", "file": "", "command line": "bold"}


ConfigArgument = Annotated[Path, Argument(help=f"Config file in YAML. The keys: {page('train')}.")]
EngineOption = Annotated[
    str,
    Option(help=f"Training engine: {', '.join(ENGINES)}.", autocompletion=lambda: list(ENGINES)),
]
KeySetting = Annotated[
    list[str],
    Option("--set", help="Set a key of the config: --set update.learning_rate=1e-5. Repeatable."),
]
DryFlag = Annotated[bool, Option("--dry-run", help="Check and print the config without training.")]
TinyFlag = Annotated[
    bool,
    Option(
        "--tiny",
        help="Try the config on a CPU: with a tiny model, small counts, and FOLDER_tiny as output.",
    ),
]
ResumeFlag = Annotated[
    bool, Option("--resume", help="Continue from the last checkpoint, if there is one.")
]


def train(
    config: ConfigArgument,
    engine: EngineOption = "trl",
    settings: KeySetting = [],  # noqa: B006 (typer copies it)
    dry_run: DryFlag = False,
    resume: ResumeFlag = False,
    tiny: TinyFlag = False,
    as_json: options.Json = False,
    _quiet: options.Quiet = False,
) -> None:
    """Train a model with a config file.

    First prints each value of the config, and where it was set: in the file, on the command line or
    by default. Needs the extra of the engine.

    Examples:
        ascribe train examples/train/arithmetic_ibpo.yaml --dry-run
        ascribe train config.yaml --set update.learning_rate=1e-5
        ascribe train config.yaml --resume
    """
    with by_config(config, engine, settings, dry_run=dry_run, as_json=as_json) as loaded:
        if tiny:
            loaded = tiny_config(loaded, engine)  # noqa: PLW2901
        if dry_run:
            check_config(loaded, engine)
        else:
            run(loaded, engine, resume=resume)
            print_model_path(loaded)


@contextmanager
def by_config(
    path: Path, engine: str, settings: list[str], *, dry_run: bool, as_json: bool
) -> Iterator[Config]:
    """Load and print a config; report errors in it or in the run, and exit."""
    if engine not in ENGINES:
        screen.wrong_call(unknown("engine", screen.safe(engine), ENGINES))
    try:
        loaded = load_config(path, screen.settings(settings))
        if not dry_run:
            _find_own_code(loaded.config)
        _keep_config(path, Path(loaded.config.output.folder))
        if is_first_process():
            _print(loaded, as_json=as_json)
        yield loaded.config
    except ConfigError as error:
        *others, last = error.problems
        for problem in others:
            tell_error(screen.safe(problem, 400))
        screen.wrong_call(screen.safe(last, 400), screen.safe(error.hint, 400))
    except (ImportError, OSError, ValueError, TypeError) as error:
        screen.wrong_call(error)
    except (EngineError, RolloutFailedError) as error:
        screen.wrong_call(error, code=1)


def _find_own_code(config: Config) -> None:
    """Let the environment and the recipe be modules of this folder, in every process of the run."""
    names = (config.environment.name, config.recipe.name)
    screen.find_own_code(*names)
    if any(":" in name for name in names):
        given = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (given, str(Path.cwd()))))


def _keep_config(path: Path, folder: Path) -> None:
    """Refuse to write the config of a new run over the config that it is started by."""
    record = folder / "config.yaml"
    if record.exists() and record.samefile(path) and not (folder / METRICS).exists():
        raise ConfigError(
            f"output.folder: the run would overwrite {path}, by which it is started",
            hint="name another folder, or move the file",
        )


def print_model_path(config: Config) -> None:
    """Print how held-out tasks went, and where the model was written."""
    folder = Path(config.output.folder)
    if summary := evaluation_summary(read_metrics(folder), config.evaluation.threshold):
        screen.err.print(Text(summary))
    screen.print_note(f"Wrote {folder / MODEL}.", "green")


def _print(loaded: LoadedConfig, *, as_json: bool) -> None:
    fields = known_keys()
    rows = []
    for keys, value in leaves(loaded.config):
        extra: Any = fields[keys].json_schema_extra if keys in fields else {"origin": ""}
        rows.append((".".join(keys), value, loaded.origins[keys], extra["origin"]))
    if as_json:
        screen.print_json(
            {name: {"value": value, "set_by": origin} for name, value, origin, _ in rows}
        )
        return
    table = Table()
    for name in ("key", "value", "set by"):
        table.add_column(name, overflow="fold")
    section = rows[0][0].partition(".")[0]
    for name, value, origin, source in rows:
        if section != name.partition(".")[0]:
            table.add_section()
            section = name.partition(".")[0]
        set_by = f"default: {source}" if origin == "default" else origin
        text = screen.safe(json.dumps(value), 200)
        table.add_row(Text(screen.safe(name)), Text(text), Text(set_by, style=STYLES[origin]))
    screen.print_summary(table)
