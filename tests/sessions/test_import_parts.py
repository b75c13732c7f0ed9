"""Conversations that do not fit into memory are imported as several tables."""

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from ascribe.cli import app
from ascribe.sessions.formats import import_files, import_parts
from ascribe.steps.problems import TableError


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Forty conversations of one to three turns in two files; names repeat."""
    random = np.random.default_rng(0)
    paths = []
    for number in range(2):
        lines = []
        for n in range(20):
            messages = [{"role": "user", "content": f"task {n % 4}"}]
            for turn in range(int(random.integers(1, 4))):
                messages.append({"role": "assistant", "content": f"go {random.integers(3)}"})
                messages.append({"role": "user", "content": f"room {turn}"})
            lines.append(json.dumps({"messages": messages, "reward": float(n % 3 == 0)}))
        paths.append(tmp_path / f"{number}.jsonl")
        paths[-1].write_text("\n".join(lines))
    return paths


def test_parts_have_the_rows_of_the_whole(files: list[Path]) -> None:
    whole = import_files(files)
    parts = list(import_parts(files, most_steps=15))
    assert len(parts) > 3
    assert {part.state for part in parts} == {whole.state}
    rows = [row for part in parts for row in part.table.to_dicts()]
    assert rows == whole.table.to_dicts()
    messages = [m for part in parts for m in part.carried.column("messages").to_pylist()]
    assert messages == whole.carried.column("messages").to_pylist()


def test_a_folder_of_parts_is_credited(files: list[Path], tmp_path: Path) -> None:
    names, out = [str(file) for file in files], tmp_path / "steps"
    ran = CliRunner().invoke(app, ["import", *names, "--out", str(out), "--json"])
    assert ran.exit_code == 0, ran.output
    facts = json.loads(ran.stdout)
    whole = import_files(files)
    assert facts["steps"] == len(whole.table) == pq.read_table(out).num_rows
    assert facts["groups"] == whole.table.group.values.size
    again = CliRunner().invoke(app, ["import", *names, "--out", str(out)])
    assert again.exit_code == 2
    assert "is not empty" in " ".join(again.stderr.split())
    credited = CliRunner().invoke(app, ["credit", str(out), "--out", str(tmp_path / "credited")])
    assert credited.exit_code == 0, credited.output


def test_no_reward_in_any_part_leaves_nothing(tmp_path: Path) -> None:
    line = {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}
    source = tmp_path / "in.jsonl"
    source.write_text(f"{json.dumps(line)}\n" * 9)
    with pytest.raises(TableError, match="has a reward"):
        list(import_parts([source], most_steps=2))
    ran = CliRunner().invoke(app, ["import", str(source), "--out", str(tmp_path / "out")])
    assert ran.exit_code == 1
    assert [entry.name for entry in tmp_path.iterdir()] == ["in.jsonl"]
