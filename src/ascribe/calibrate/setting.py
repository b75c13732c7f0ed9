"""The file that a calibration writes for training, in YAML."""

from dataclasses import asdict, dataclass, fields
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, get_args, get_type_hints

from ascribe.calibrate.choose import Calibration
from ascribe.fingerprints.actor import Pooling
from ascribe.steps.atomic import write_file
from ascribe.steps.strict_yaml import import_yaml, read_yaml

PACKAGES = ("ascribe", "numpy", "torch", "transformers")

HEADER = "# Written by ascribe calibrate. Training reads the first block; the rest says why.\n"


@dataclass(frozen=True)
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
    pooling: str
    radius: float
    text_column: str
    chat: bool
    most_tokens: int
    dtype: str

    def __post_init__(self) -> None:
        for name, kind in get_type_hints(Setting).items():
            value = getattr(self, name)
            if type(value) is not kind and not (kind is float and type(value) is int):
                raise ValueError(f"{name} must be of type {kind.__name__}, not {value!r}")
        if not 0 <= self.layer < self.blocks:
            raise ValueError(f"layer {self.layer} of a model with {self.blocks} decoder blocks")
        if self.pooling not in get_args(Pooling):
            raise ValueError(f"pooling must be one of {get_args(Pooling)}, not {self.pooling!r}")
        if not 0 <= self.radius <= 2:
            raise ValueError(f"a cosine distance is from 0 to 2, not {self.radius}")


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
    text = import_yaml("figures").safe_dump(
        document, sort_keys=False, width=100, allow_unicode=False
    )
    write_file(path, HEADER + text)


def read_setting(path: str | Path) -> Setting:
    """The setting in a file that ``write_setting`` wrote.

    Raises:
        ValueError: if it is not such a file.
        ImportError: without PyYAML.
        OSError: if it cannot be opened.
    """
    document = read_yaml(path, "figures")
    values = document.get("setting") if isinstance(document, dict) else None
    names = {field.name for field in fields(Setting)}
    if not isinstance(values, dict) or set(values) != names:
        raise ValueError(f"{path} must have the block setting with {', '.join(sorted(names))}")
    return Setting(**values)


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
        "rule": asdict(calibration.rule),
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
