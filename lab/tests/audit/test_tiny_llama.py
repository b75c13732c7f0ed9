"""The fast player of the benchmark reads and writes what transformers reads and writes."""

from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[3]

pytestmark = pytest.mark.unit


def test_hidden_states_are_those_of_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch", reason="needs the extra actor")
    transformers = pytest.importorskip("transformers", reason="needs the extra actor")
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    import bipace_in_one_file as example

    from experiments.audit_policy.tiny_llama import TinyLlama

    torch.manual_seed(0)
    config = transformers.LlamaConfig(vocab_size=len(example.VOCABULARY), **example.SIZES)
    policy = transformers.LlamaForCausalLM(config).eval()
    with torch.no_grad():
        policy.lm_head.weight[example.END] += 0.3  # some actions end early
    player, generator = TinyLlama(policy, torch.float32), torch.Generator().manual_seed(1)
    monkeypatch.setattr(example, "HORIZON", 3)
    steps = example.play(lambda rows, _: player.act(rows, generator), 2, "test")
    assert len({len(step.tokens) for step in steps}) > 1
    assert len({(step.group, *step.prompt) for step in steps}) < len(steps)
    with torch.no_grad():
        prefixes = example.read_prefixes(policy)
        ids, real = example.padded([step.tokens for step in steps], "right")
        out, _ = example.read(policy, prefixes, steps, (ids, real))
        hidden = out.last_hidden_state[:, -ids.shape[1] - 1 : -1]
        states = example.read(policy, prefixes, steps)[0].hidden_states[-2][:, -1]
        logp = policy.lm_head(hidden).log_softmax(-1)
    for number, step in enumerate(steps):
        count = len(step.tokens)
        np.testing.assert_allclose(step.hidden, hidden[number, :count], atol=1e-4)
        np.testing.assert_allclose(step.fingerprint, states[number], atol=1e-4)
        mine = player.logp(torch.from_numpy(step.hidden))
        np.testing.assert_allclose(mine, logp[number, :count], atol=1e-4)
