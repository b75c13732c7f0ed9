"""No damage to a file ends in a traceback, a crash, a hang or a wrong answer."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.fuzz.worker import FAMILIES

pytestmark = pytest.mark.slow

CASES = {
    "lines_by_bytes": 1000,
    "lines_by_values": 1200,
    "packed": 500,
    "parquet_by_bytes": 800,
    "foreign_parquet_by_bytes": 500,
    "parquet_by_values": 800,
}
SECONDS_PER_BATCH = 120
"""A batch takes a few; only a hang takes this long."""


def run(family: str, cases: int, folder: Path) -> list[dict[str, str]]:
    """How each case ended. Fails, with its number, at one that ended the process."""
    root = Path(__file__).parents[2]
    command = [sys.executable, "-W", "error", "-m", "tests.fuzz.worker", family, "0", str(cases)]
    try:
        done = subprocess.run(
            [*command, str(folder)],
            cwd=root,
            capture_output=True,
            text=True,
            timeout=SECONDS_PER_BATCH,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        last = (error.stdout or b"").decode().splitlines()[-1:]
        pytest.fail(f"{family} hangs in the case after {last}")
    ends = [json.loads(line) for line in done.stdout.splitlines()]
    if done.returncode != 0:
        pytest.fail(f"{family}, case {len(ends)}: {done.returncode}, {done.stderr[-3000:]}")
    return ends


def test_enough_cases():
    assert set(CASES) == set(FAMILIES)
    assert sum(CASES.values()) >= 2000


@pytest.mark.parametrize("family", CASES)
def test_every_damaged_file_ends_well(family: str, tmp_path: Path):
    ends = run(family, CASES[family], tmp_path)
    assert [end["case"] for end in ends] == list(range(CASES[family]))
    assert [end for end in ends if end["end"] == "wrong"] == []
    counted = Counter(end["end"] for end in ends)
    print(family, dict(counted))
    # Some damage does no harm: to the mark of a seal, to a name in a header, to the last newline.
    assert counted["refused"] > counted["right"] > 0
    # Without a seal, damage to a footer can pass; pages have their checksums.
    assert counted["changed"] <= (5 if family.startswith("foreign") else 0)
