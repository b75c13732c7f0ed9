"""Point 12: a Ray that Ascribe starts listens on the loopback address alone.

Before, it listened on every interface of the machine.
"""

import os
from pathlib import Path

import pytest

from ascribe_lab.train.verl.run import LOOPBACK, _environment


def test_a_run_of_verl_on_one_node_starts_ray_on_the_loopback_address(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.delenv(LOOPBACK, raising=False)
    assert _environment(cpu=True, one_node=True)[LOOPBACK] == "0"
    assert LOOPBACK not in _environment(cpu=True, one_node=False)
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    assert LOOPBACK not in _environment(cpu=True, one_node=True)
    monkeypatch.delenv("RAY_ADDRESS")
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "ray_current_cluster").touch()
    assert LOOPBACK not in _environment(cpu=True, one_node=True)
    assert os.environ.get(LOOPBACK) is None
