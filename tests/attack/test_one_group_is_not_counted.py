"""Sentences of the report about one thing are in the singular."""

from pathlib import Path

from ascribe import recipe
from ascribe.reports import picture
from tests.conftest import write_jsonl
from tests.report.toys import sound


def test_one_group_is_not_counted(tmp_path: Path) -> None:
    rows = sound(groups=3)
    lost = [row for row in rows if row["group"] == "task 0" and row["step"] == 1]
    for row in lost:
        row["reward"] = None
    file = write_jsonl(tmp_path / "steps.jsonl", rows)
    findings = picture([file], recipe("gigpo")).verdict.findings
    (message,) = [finding.message for finding in findings if finding.name == "dropped"]
    size = sum(row["group"] == "task 0" for row in rows)
    assert message == (
        f"1 group ({size} rows) could not be credited and is not counted on this page: "
        "missing_reward."
    )
