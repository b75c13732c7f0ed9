"""Point 12: a Ray that Ascribe starts listens on the loopback address alone.

Before, it listened on every interface of the machine.
"""

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ascribe.engines.verl.run import _environment
from ascribe.rollout.pools.ray_pool import LOOPBACK

LOCAL = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}
"""127.0.0.1, the same in IPv6, and ::1, as the kernel writes them."""


@pytest.mark.engine
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_pool_starts_ray_on_the_loopback_address(ray_cluster: Any) -> None:
    assert ray_cluster.is_initialized()
    addresses = addresses_of(descendants(os.getpid()))
    assert addresses
    assert addresses <= LOCAL


def descendants(process: int) -> set[int]:
    """A process and all that it started."""
    parents = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            stat = entry.joinpath("stat").read_text().rpartition(")")[2]
            parents[int(entry.name)] = int(stat.split()[1])
    found = {process}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def addresses_of(processes: set[int]) -> set[str]:
    """The addresses on which processes listen, as the kernel writes them."""
    listening = {}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A":
                listening[f"socket:[{fields[9]}]"] = fields[1].partition(":")[0]
    addresses = set()
    for process in processes:
        for descriptor in Path(f"/proc/{process}/fd").glob("*"):
            with suppress(OSError):
                addresses.add(listening.get(str(descriptor.readlink()), ""))
    return addresses - {""}


def test_a_run_of_verl_on_one_node_does_the_same(
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
