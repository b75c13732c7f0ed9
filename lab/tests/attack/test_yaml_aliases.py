"""A YAML file of a few lines cannot stand for a document larger than any memory."""

import time
from pathlib import Path

import pytest

pytest.importorskip("yaml", reason="needs PyYAML")

from ascribe.steps.strict_yaml import read_yaml
from ascribe_lab.calibrate.setting import read_setting
from ascribe_lab.train.config import ConfigError
from ascribe_lab.train.load import load_config

LAUGHS = "a0: &a0 [x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)
)
MERGED = "a0: &a0 {k0: 1}\n" + "".join(
    f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}], k{n}: 1}}\n" for n in range(1, 12)
)
HOSTILE = {
    "aliases of aliases": LAUGHS,
    "merges of merges": MERGED,
    "a list that holds itself": "a: &a [*a]",
    "a mapping that holds itself": "a: &a {b: *a}",
    "a date that is none": "a: 2020-99-99",
    "a number that is none": 'a: !!int "x"',
    "a key that is a list": "? [a, b]\n: c",
    "a key twice": "a: 1\na: 2",
    "a Python object": "a: !!python/object/apply:os.system [echo]",
    "deep nesting": "a: " + "[" * 100_000,
    "bytes that are no base64": "a: !!binary 5",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_yaml_is_refused_with_a_reason(tmp_path: Path, name: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(HOSTILE[name], encoding="utf-8")
    began = time.monotonic()
    with pytest.raises(ConfigError, match="is not a YAML file"):
        load_config(path)
    with pytest.raises(ValueError, match="is not a YAML file"):
        read_setting(path)
    assert time.monotonic() - began < 5


def test_honest_aliases_are_read(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("a: &a {b: 1}\nc: {<<: *a, d: 2e-6}\ne: [*a, *a]\n", encoding="utf-8")
    assert read_yaml(path) == {
        "a": {"b": 1},
        "c": {"b": 1, "d": 2e-6},
        "e": [{"b": 1}, {"b": 1}],
    }
