"""The code blocks that ``test_docs`` does not replay: ``sh``, ``bash``, ``py`` and data.

``sh`` blocks stand for a reader's own files. They are run here on files of those names, but for
those in ``ELSEWHERE``. Every call of ``ascribe`` in any block must parse, ``py`` must compile, and
data must load.
"""

import ast
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from shutil import copy
from typing import Any

import pytest
import yaml

from ascribe import cli
from ascribe.cli import load_command

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("[!_]*/*.md"))]
PAGES += sorted((ROOT / "docs").glob("*.md"))
BLOCK = re.compile(r"^ *```(sh|bash|py|yaml|toml|json)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
BLOCKS = [
    (str(page.relative_to(ROOT)), kind, body)
    for page in PAGES
    for kind, body in BLOCK.findall(page.read_text(encoding="utf-8"))
]

ELSEWHERE = {
    "README.md: pip install": "network; nightly by test_readme.py and, from wheels, by .ci/run",
    "docs/audit.md: ascribe audit": "minutes; test_cli_lab.py runs it shorter",
    "docs/benchmarks.md: python benchmarks": "minutes to hours; test_benchmarks.py",
    "docs/engines/quickstart.md: uv venv": "network; make_env.sh and test_trl_quickstart.py",
    "docs/engines/trl.md: uv pip": "network; make_env.sh",
    "docs/engines/quickstart.md: scripts/make_env.sh": "gigabytes; lab/tests/train, with verl",
    "docs/environments/external.md: ascribe rollout": "a sandbox; test_docs.py plays it",
    "docs/fingerprints.md: pip install": "network and a model; test_calibrate.py",
    "docs/howto/cost.md: ascribe credit archive/": "an archive and Ray; tests/archives",
    "docs/howto/cost.md: ascribe credit s3:": "network",
    "docs/howto/cost.md: #!/bin/bash": "a cluster; nobody has run it",
    "docs/import.md: ascribe import log.jsonl": "fields of the reader's; test_fields.py",
    "docs/import.md: curl": "a gateway; nightly by test_harness.py",
    "docs/install.md: python3 -m venv": "network; nightly by test_readme.py",
    "docs/install.md: uv pip install": "network; make_env.sh",
    "docs/play.md: pip install": "network and a model; nightly by test_readme.py",
    "docs/play.md: scripts/make_env.sh": "gigabytes; nightly by test_readme.py",
    "docs/questions.md: ascribe report gateway": "a gateway's log; test_docs.py, on harness.md",
    "docs/questions.md: python -m ascribe.engines.verl": "verl; lab/tests/train",
    "docs/report.md: pip install": "network; .ci/run",
    "docs/tutorials/harness.md: pip install": "network and a model; nightly by test_harness.py",
    "docs/tutorials/logs.md: pip install": "network; .ci/run",
}
"""``sh`` blocks that are not run here, by their page and start: what they need, and who runs them.

No ``bash`` block is run here: they take gigabytes, GPUs, a trainer or a run of the reader's own.
"""


def here(block: tuple[str, str, str]) -> bool:
    page, kind, body = block
    return kind == "sh" and not any(f"{page}: {body}".startswith(each) for each in ELSEWHERE)


def name(block: tuple[str, str, str]) -> str:
    return f"{block[0]}: {block[2].splitlines()[0].strip()[:50]}"


RUN = [block for block in BLOCKS if here(block)]


def test_every_exception_is_still_there() -> None:
    starts = [f"{page}: {body}" for page, kind, body in BLOCKS if kind == "sh"]
    assert [each for each in ELSEWHERE if not any(s.startswith(each) for s in starts)] == []


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that the pages name, all made from the conversations."""
    folder = tmp_path_factory.mktemp("pages")
    log = ROOT / "examples" / "conversations.jsonl"
    (folder / "examples").symlink_to(ROOT / "examples")
    for each in ("sessions", "old", "new", "traces"):
        copy(log, folder / f"{each}.jsonl")
    sessions = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    logs = [
        {"messages": s["messages"], "info": {"score": s["reward"], "task_id": s["task"]}}
        for s in sessions
    ]
    write(folder / "logs.jsonl", logs)
    steps = [
        {"group": g, "trajectory": f"{g}-{t}", "step": n, "state": f"room {n}", "my_score": 0.5}
        | {"observation": f"You are in room {n}."}
        | {"action": "left" if (t + n) % 2 else "right", "reward": float(n == 2 and t > 3)}
        for g in ("a", "b")
        for t in range(8)
        for n in range(3)
    ]
    (folder / "mine.py").write_text("from ascribe.estimators import GRPO as Mine\n")
    write(folder / "rollouts.jsonl", steps)
    write(folder / "rollouts.parquet", steps)
    (folder / "runs").mkdir()
    write(folder / "runs" / "mine", steps)
    return folder


def write(file: Path, rows: list[dict[str, Any]]) -> None:
    if file.suffix == ".jsonl":
        file.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
        return
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not file.suffix:
        file.mkdir()
        file /= "rollouts_00000.parquet"
    pq.write_table(pa.Table.from_pylist(rows), file)


@pytest.mark.slow
@pytest.mark.parametrize("block", RUN, ids=name)
def test_a_block_for_own_files_runs(block: tuple[str, str, str], files: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", block[2]],
        cwd=files,
        env={"PATH": path, "PYTHONUTF8": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr  # 1: check and --fail-if found something
    assert "Traceback" not in done.stderr
    assert "error: " not in done.stderr


CALLS = [
    (f"{page}: {call[:60]}", call)
    for page, kind, body in BLOCKS
    if kind in ("sh", "bash")
    for call in re.findall(
        r"(?:^|bin/|\| )(ascribe [a-z](?:\"[^\"]*\"|'[^']*'|[^\"'\n])*?)(?: [|>] .*)?$",
        body.replace("\\\n", " "),
        re.MULTILINE,
    )
]


@pytest.mark.parametrize("call", [call for _, call in CALLS], ids=[name for name, _ in CALLS])
def test_every_call_parses(call: str) -> None:
    _, command, *arguments = ["FILE" if w == "-" else w for w in shlex.split(call, comments=True)]
    assert command in cli.commands()
    load_command(command).make_context(command, arguments, resilient_parsing=False).close()


@pytest.mark.parametrize("block", [each for each in BLOCKS if each not in RUN], ids=name)
def test_what_is_not_run_is_well_formed(block: tuple[str, str, str]) -> None:
    _, kind, body = block
    if kind == "py":
        ast.parse(body)
    elif kind == "json":
        json.loads(body)
    elif kind == "toml":
        tomllib.loads(body)
    elif kind == "yaml":
        assert isinstance(yaml.safe_load(body), dict)
    else:
        subprocess.run(["bash", "-n", "-c", body], check=True)
