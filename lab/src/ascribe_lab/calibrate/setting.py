"""The file that a calibration writes for training, in YAML."""

from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from ascribe.steps.atomic import write_file
from ascribe.steps.errors import InputError
from ascribe.steps.strict_yaml import import_yaml, read_yaml
from ascribe_lab.calibrate.actor import Pooling
from ascribe_lab.calibrate.choose import Calibration

PACKAGES = ("ascribe", "numpy", "torch", "transformers")

HEADER = "# Written by ascribe calibrate. Training reads the first block; the rest says why.\n"


@dataclass(frozen=True, config=ConfigDict(strict=True, extra="forbid"))
class Setting:
    """Where a model's fingerprints are taken, and how close two of them must be.

    Attributes:
        model: folder of the model, or its name.
        blocks: how many decoder blocks it has; a setting does not fit a model with another number.
        layer: index of the decoder block, from 0.
        pooling: how the hidden states of a prompt become one vector.
        radius: largest cosine distance of states that count as the same.
        text_column: what the model read in the rollouts.
        chat: whether each text was wrapped in the model's chat template.
        most_tokens: longer texts were cut to this many tokens at the end.
        dtype: type that the model computed in.
    """

    model: str
    blocks: int
    layer: int
    pooling: Pooling
    radius: Annotated[float, Field(ge=0, le=2)]
    text_column: str
    chat: bool
    most_tokens: int
    dtype: str

    def __post_init__(self) -> None:
        if not 0 <= self.layer < self.blocks:
            raise InputError(f"layer {self.layer} of a model with {self.blocks} decoder blocks")


def write_setting(
    path: Path, setting: Setting, calibration: Calibration, *, rollouts: dict[str, Any], seed: int
) -> None:
    """Write the setting, and the calibration that it follows from.

    Args:
        path: where to write.
        setting: what training reads.
        calibration: the calibration.
        rollouts: description of the rows that were used.
        seed: seed of the folds.

    Raises:
        ImportError: without PyYAML.
    """
    document = {"setting": asdict(setting), **record(calibration), "rollouts": rollouts}
    document |= {"seed": seed, "versions": {name: _version(name) for name in PACKAGES}}
    text = import_yaml().safe_dump(document, sort_keys=False, width=100, allow_unicode=False)
    write_file(path, HEADER + text)


def read_setting(path: str | Path) -> Setting:
    """The setting in a file that ``write_setting`` wrote.

    Raises:
        ValueError: if it is not such a file.
        ImportError: without PyYAML.
        OSError: if it cannot be opened.
    """
    document = read_yaml(path)
    values = document.get("setting") if isinstance(document, dict) else None
    if not isinstance(values, dict):
        raise InputError(f"{path} must have the block setting")
    try:
        return Setting(**values)
    except (TypeError, ValueError) as error:
        raise InputError(f"{path}: {error}") from error


def record(calibration: Calibration) -> dict[str, Any]:
    """A calibration as plain values, for YAML and JSON."""
    return {
        "clusters": asdict(calibration.clusters),
        "target": asdict(calibration.target),
        "search": {
            "median": calibration.search.median,
            "in_range": calibration.search.in_range,
            "probes": [
                {"radius": radius, "median": median} for radius, median in calibration.search.probes
            ],
        },
        "decided_at": list(calibration.decided_at),
        "scan": [
            {
                "layer": scan.layer,
                "pooling": scan.pooling,
                "probe": asdict(scan.probe),
                "partitions": [asdict(partition) for partition in scan.partitions],
            }
            for scan in calibration.scans
        ],
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
