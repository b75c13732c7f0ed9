"""Point 12: a Ray that Ascribe starts listens on the loopback address alone.

Before, it listened on every interface of the machine.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ascribe.engines.verl.run import _environment
from ascribe.rollout.pools.ray_pool import LOOPBACK

PROGRAM = """
import os
from pathlib import Path
from ascribe.rollout.pools import EnvironmentSpec, RayPool, Reset

with RayPool(EnvironmentSpec("ezpoints"), 1, 1, 60.0, 60.0) as pool:
    pool.reset({0: Reset(0)})
    listening = {}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *_, = fields = line.split()
            if state == "0A":
                listening[fields[9]] = local.partition(":")[0]
    parents = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            stat = entry.joinpath("stat").read_text().rpartition(")")[2]
            parents[int(entry.name)] = int(stat.split()[1])
        except OSError:
            pass
    ours = {os.getpid()}
    while more := {child for child, parent in parents.items() if parent in ours} - ours:
        ours |= more
    addresses = set()
    for process in ours:
        for descriptor in Path(f"/proc/{process}/fd").glob("*"):
            try:
                inode = os.readlink(descriptor).removeprefix("socket:[").rstrip("]")
            except OSError:
                continue
            if inode in listening:
                addresses.add(listening[inode])
    print("addresses", *sorted(addresses))
"""
LOCAL = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}
"""127.0.0.1, the same in IPv6, and ::1, as the kernel writes them."""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_pool_starts_ray_on_the_loopback_address() -> None:
    pytest.importorskip("ray", reason="needs the extra ray")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120, check=True
    )
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("addresses")]
    addresses = set(line.split()[1:])
    assert addresses
    assert addresses <= LOCAL


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
