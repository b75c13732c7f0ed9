"""Reports on real logs, against what plain reading of the files says."""

import json
import os
from pathlib import Path

import pytest

from ascribe.reports import picture


@pytest.fixture(scope="module")
def data() -> Path:
    folder = os.environ.get("ASCRIBE_TEST_DATA")
    if not folder or not (Path(folder) / "real").is_dir():
        pytest.skip("ASCRIBE_TEST_DATA names no folder with real sessions")
    return Path(folder) / "real"


@pytest.mark.parametrize(
    "folder", ["tau_bench", "tau_bench_retail", "tau2_airline", "tau2_telecom"]
)
def test_errors_are_those_of_the_log(data: Path, folder: str) -> None:
    """Results that begin with ``Error``, as the log has them, whatever the page counts besides."""
    found = expected = 0
    for file in sorted((data / folder).glob("*.json")):
        document = json.loads(file.read_text())
        for session in document["simulations"] if isinstance(document, dict) else document:
            messages = session.get("messages") or session.get("traj") or []
            results = [each for each in messages if each["role"] == "tool"]
            expected += sum(each["content"].startswith("Error") for each in results)
    found = sum(each["errors"] for each in picture(data / folder).browser["tools"])
    assert found == expected
