"""Archives on a Ray cluster, and in S3 (moto's server, on loopback)."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from ascribe import recipe
from ascribe.archives import credit_archive, run, workers
from ascribe.archives.partition import ArchiveParts
from ascribe.cli import app
from tests.archives.test_archives import (
    SMALL,
    conversations,
    in_memory,
    plain,
    same,
    steps,
    written,
)
from tests.raylets import raylets, wait_for

pytest.importorskip("ray", reason="needs the extra ray")
pytestmark = [pytest.mark.engine, pytest.mark.filterwarnings("ignore")]


def scattered(folder: Path) -> Path:
    columns = steps(30)
    order = np.random.default_rng(0).permutation(len(columns["step"]))
    return written(folder, columns, order=order)


def kill_once(job: Any, number: int) -> None:
    """A task during which its worker is killed, once."""
    mark = Path(job.work.path).parents[1] / "killed"
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    run.scan(job.archive, job.work, number, by_group=True)


def test_a_cluster_gives_the_same_bits_although_a_worker_dies(
    tmp_path: Path, ray_cluster: Any, monkeypatch: pytest.MonkeyPatch
):
    source = scattered(tmp_path / "in")
    expected = in_memory(source, recipe("gigpo"))
    monkeypatch.setattr(run, "scan_task", kill_once)
    credit_archive(source, tmp_path / "out", recipe("gigpo"), memory=SMALL, ray="auto")
    assert (tmp_path / "killed").exists()
    assert same(plain(tmp_path / "out"), expected)


def test_passes_of_events_as_ray_tasks_give_the_bits_of_one_process(
    tmp_path: Path, ray_cluster: Any, monkeypatch: pytest.MonkeyPatch
):
    source = written(tmp_path / "in", conversations())
    monkeypatch.setattr(run, "divide", lambda *a, **k: ArchiveParts(3))
    for name, address in (("one", None), ("ray", "auto")):
        credit_archive(source, tmp_path / name, recipe("events"), ray=address)
    assert same(plain(tmp_path / "ray"), plain(tmp_path / "one"))


def test_errors_of_tasks_are_those_of_one_process(tmp_path: Path, ray_cluster: Any):
    with workers.running("auto") as (each, cpus):
        assert cpus == ray_cluster.cluster_resources()["CPU"]
        with pytest.raises(FileNotFoundError):
            list(each(os.stat, [tmp_path / "no such file"]))
        assert sorted(each(len, ["a", "bb"])) == [1, 2]


@pytest.fixture
def s3() -> Iterator[str]:
    """The address of a bucket on moto's server, on loopback.

    It has the credentials, since workers of the cluster may have been started before.
    """
    if (moto := shutil.which("moto_server")) is None:
        pytest.skip("needs moto's server: pip install 'moto[server]'")
    import socket

    from pyarrow.fs import FileSystem

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [moto, "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(300):
            try:
                urlopen(f"http://127.0.0.1:{port}/moto-api", timeout=5).close()
                break
            except OSError:
                time.sleep(0.1)
        options = f"?region=us-east-1&scheme=http&endpoint_override=127.0.0.1:{port}"
        options += "&allow_bucket_creation=true&allow_delayed_open=true"
        FileSystem.from_uri(f"s3://testing:testing@archive/x{options}")[0].create_dir("archive")
        yield f"s3://testing:testing@archive/{{}}{options}"
    finally:
        server.terminate()
        server.wait()


@pytest.mark.parametrize("where", ["one process", "ray"])
def test_archives_in_s3(tmp_path: Path, s3: str, where: str, request: pytest.FixtureRequest):
    from pyarrow.fs import FileSystem

    if where == "ray":
        request.getfixturevalue("ray_cluster")
    source = scattered(tmp_path / "in")
    expected = in_memory(source, recipe("gigpo"))
    system, _ = FileSystem.from_uri(s3.format("x"))
    for file in source.iterdir():
        with system.open_output_stream(f"archive/in/{file.name}") as upload:
            upload.write(file.read_bytes())
    for name in ("out.parquet", "out"):
        out = s3.format(name)
        address = "auto" if where == "ray" else None
        credit_archive(s3.format("in"), out, recipe("gigpo"), memory=SMALL, ray=address)
        copy = tmp_path / f"{where}.parquet"
        pq.write_table(pq.read_table(f"archive/{name}", filesystem=system), copy)
        assert same(plain(copy), expected)


def test_outputs_in_s3_have_the_guard_of_local_ones(tmp_path: Path, s3: str):
    from pyarrow.fs import FileSelector, FileSystem

    def call(source: str | Path, name: str, *words: str) -> Any:
        command = ["credit", str(source), "--out", s3.format(name), "--memory", "0.5", *words]
        return CliRunner().invoke(app, command)

    def names(folder: str) -> list[str]:
        found = system.get_file_info(FileSelector(f"archive/{folder}"))
        return sorted(entry.base_name for entry in found)

    source, system = scattered(tmp_path / "in"), FileSystem.from_uri(s3.format("x"))[0]
    for name in ("important/thesis.txt", ".out.leases/left"):
        system.create_dir(f"archive/{name.rpartition('/')[0]}")
        with system.open_output_stream(f"archive/{name}") as file:
            file.write(b"the only copy")
    for words in ([], ["--force"]):
        refused = call(source, "important", *words)
        assert refused.exit_code == 2
        assert "thesis.txt" in refused.stderr
    assert names("important") == ["thesis.txt"]
    refused = call(source, "out")
    assert "remove its lease s3://archive/.out.leases/left" in " ".join(refused.stderr.split())
    system.delete_file("archive/.out.leases/left")
    first = call(source, "out")
    assert first.exit_code == 0, first.output
    assert "testing" not in first.output
    before = names("out")
    assert call(source, "out").exit_code == 2
    assert call(s3.format("out"), "out", "--force").exit_code == 2
    assert names("out") == before
    assert call(source, "out", "--force").exit_code == 0
    assert len(names("out")) == len(before)
    assert not set(names("out")) & set(before) - {".ascribe.json"}
    assert system.get_file_info("archive/.out.leases").type.name == "NotFound" or not names(
        ".out.leases"
    )
    credited = pq.read_table("archive/out", filesystem=system)
    assert credited.num_rows == pq.read_table(source).num_rows


PROGRAM = """
import sys, ray
from ascribe import recipe
from ascribe.archives import credit_archive
ray.init(num_cpus=int(sys.argv[3]), include_dashboard=False, log_to_driver=False)
credit_archive(sys.argv[1], sys.argv[2], recipe("gigpo"), memory=1, ray="auto")
"""


@pytest.mark.nightly
@pytest.mark.parametrize("cpus", ["1", "2"])
def test_one_worker_and_two_give_the_same_bits(tmp_path: Path, cpus: str):
    source = scattered(tmp_path / "in")
    command = [sys.executable, "-c", PROGRAM, source, tmp_path / "out", cpus]
    subprocess.run(command, check=True, timeout=300)
    assert same(plain(tmp_path / "out"), in_memory(source, recipe("gigpo")))


CREDIT = """
import sys
from ascribe import recipe
from ascribe.archives import credit_archive
credit_archive(sys.argv[1], sys.argv[2], recipe("gigpo"), memory=1, ray=sys.argv[3])
"""


@pytest.mark.nightly
def test_a_node_that_is_killed_leaves_the_bits_as_they_are(tmp_path: Path):
    """Three nodes, of which one is killed amid its tasks."""
    columns = steps(200)
    order = np.random.default_rng(0).permutation(len(columns["step"]))
    source = written(tmp_path / "in", columns, files=12, order=order)
    with raylets() as nodes:
        lost = nodes.others[0]
        command = [sys.executable, "-c", CREDIT, source, tmp_path / "out", nodes.address]
        running = subprocess.Popen(command)
        wait_for(lambda: any(tmp_path.rglob("rows-*")) and nodes.is_busy(lost), running)
        nodes.kill(lost)
        assert running.wait(600) == 0
    assert same(plain(tmp_path / "out"), in_memory(source, recipe("gigpo")))
