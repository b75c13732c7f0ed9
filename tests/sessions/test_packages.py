"""Importers on files that real packages wrote: those that are kept, and those they write now.

``write_with_packages.py`` writes them: the attempts of ``make_samples.py``, by the packages' own
loops, types and exporters.
"""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ascribe.sessions.reading import import_files
from ascribe.steps.strict_json import canonical
from tests.sessions import write_with_packages as packages
from tests.sessions.test_formats import assert_attempts

pytestmark = pytest.mark.unit

DATA = Path(__file__).parents[1] / "data" / "packages"
FILES = {
    "anthropic.jsonl": "anthropic",
    "atif": "atif",
    "gateway.jsonl": "gateway",
    "langchain_dump.jsonl": "langchain",
    "langchain_dumpd.jsonl": "langchain",
    "langchain_state.jsonl": "langgraph",
    "langchain_to_dict.jsonl": "langchain",
    "langfuse.jsonl": "langfuse",
    "langsmith.jsonl": "langsmith",
    "mini_swe_agent": "mini-swe-agent",
    "openai_agents.jsonl": "openai-agents",
    "openinference.jsonl": "otel",
    "otlp.json": "otel",
    "spans.jsonl": "otel",
}


def bash(command: str) -> Any:
    return {"name": "bash", "arguments": {"command": command}}


def assert_read(folder: Path, name: str) -> None:
    rewards = {
        "gateway.jsonl": str(folder / "gateway_rewards.csv"),
        "mini_swe_agent": "info.reward",
    }
    imported = import_files([folder / name], reward=rewards.get(name))
    assert imported.format == FILES[name]
    if name == "mini_swe_agent":
        assert_attempts(
            imported,
            lambda path: bash(f"look {path}"),
            lambda answer: canonical(bash(f"{packages.SUBMIT} {answer}")),
        )
    else:
        assert_attempts(imported)


@pytest.mark.parametrize("name", FILES)
def test_what_the_packages_wrote(name: str):
    assert_read(DATA, name)


def test_a_session_of_atif_in_two_files_with_a_sub_agent():
    imported = import_files([DATA / "atif_session"])
    rows = imported.table.to_dicts()
    assert [row["agent"] for row in rows] == ["finder", "finder", "helper", "helper", "finder"]
    assert [row.get("parent") for row in rows] == [None, None, 1, 1, None]
    assert [row["reward"] for row in rows] == [0.0, 0.0, 0.0, 0.0, 1.0]
    assert len({row["trajectory"] for row in rows}) == 1


def test_files_that_the_packages_write_now(tmp_path: Path):
    writers = packages.writers()
    if len(writers) < len(packages.WRITERS):
        pytest.skip("needs the packages of scripts/locks/formats.txt")
    # In a process of its own: these packages warn, and leave connections open.
    command = [sys.executable, "-m", packages.__name__, tmp_path]
    subprocess.run(command, check=True, cwd=Path(__file__).parents[2])
    for name in FILES:
        assert_read(tmp_path, name)
