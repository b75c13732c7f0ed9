"""vLLM on the CPU after new weights: it must be the model that a fresh start would give."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from lab.tests.train.verl_toys import NEEDS_VERL

pytestmark = [
    pytest.mark.engine,
    pytest.mark.slow,
    NEEDS_VERL,
]


def test_after_a_sync_it_is_the_model_that_a_fresh_start_gives(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "lab.tests.train.verl_sync", str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["before"] > 1
    # What vLLM's reload does by itself: were it right, ours would not be needed.
    assert found["vllm"] > 1e-2
    assert found["ours"] < 1e-5
    assert found["ours again"] < 1e-5
