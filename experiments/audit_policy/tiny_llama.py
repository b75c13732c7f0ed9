"""Plays the policy of ``examples/bipace_in_one_file.py`` three times as fast as the example does.

The same arithmetic, checked against ``transformers``: keys and values are written into one buffer,
equal prompts are read once, finished actions drop out, and the hidden states that the output layer
reads are kept, so that gradients need no second pass.
"""

from collections.abc import Sequence
from typing import Any

import bipace_in_one_file as example
import torch
from torch.nn import functional

HEADS, WIDTH = example.SIZES["num_attention_heads"], example.SIZES["hidden_size"]


class TinyLlama:
    """The weights of a policy, arranged for generation."""

    def __init__(self, policy: Any, dtype: Any = torch.bfloat16) -> None:
        model, self.dtype = policy.model, dtype

        def joined(*parts: Any) -> Any:
            return torch.cat([part.weight.detach() for part in parts]).to(dtype)

        self.layers = []
        for layer in model.layers:
            at, mlp = layer.self_attn, layer.mlp
            self.layers.append(
                (
                    joined(layer.input_layernorm),
                    joined(at.q_proj, at.k_proj, at.v_proj),
                    joined(at.o_proj),
                    joined(layer.post_attention_layernorm),
                    joined(mlp.gate_proj, mlp.up_proj),
                    joined(mlp.down_proj),
                )
            )
        self.embed, self.head = joined(model.embed_tokens), policy.lm_head.weight.detach().float()
        self.norm, self.eps = joined(model.norm), model.config.rms_norm_eps
        cos, sin = model.rotary_emb(torch.zeros(1), torch.arange(512)[None])
        self.cos, self.sin = cos[0].to(dtype), sin[0].to(dtype)
        games = range(len(example.GAMES))
        prefixes = [example.encode(example.TextCraft(g, None).prefix) for g in games]
        ids, real = example.padded(prefixes, "right")
        self.real, count = real, ids.shape[1]
        self.prefix = self._buffer(len(prefixes), count)
        at = torch.arange(count).expand(len(prefixes), count)
        mask = real[:, None, None, :].bool() & torch.ones(count, count).tril().bool()
        self._read(ids, at, self.prefix, 0, mask, whole=True)

    def _buffer(self, rows: int, length: int) -> list[Any]:
        shape = (2, rows, HEADS, length, WIDTH // HEADS)
        return [torch.zeros(shape, dtype=self.dtype) for _ in self.layers]

    def _read(
        self, ids: Any, at: Any, buffer: list[Any], start: int, mask: Any, *, whole: bool = False
    ) -> tuple[Any, Any]:
        """Read tokens into the buffer; the last one's output, and its state a block earlier."""
        x, end = self.embed[ids], start + ids.shape[1]
        cos, sin = self.cos[at][:, None, :, :], self.sin[at][:, None, :, :]
        before = x
        for number, (norm, qkv, out, norm2, up, down) in enumerate(self.layers):
            h = functional.rms_norm(x, (WIDTH,), norm, self.eps)
            q, k, v = functional.linear(h, qkv).unflatten(-1, (3, HEADS, -1)).unbind(2)
            q, k, v = (part.transpose(1, 2) for part in (q, k, v))
            buffer[number][0][:, :, start:end] = _turned(k, cos, sin)
            buffer[number][1][:, :, start:end] = v
            if number == len(self.layers) - 1 and not whole:  # only the last token is asked for
                x, q, mask = x[:, -1:], q[:, :, -1:], mask[:, :, -1:]
                cos, sin, before = cos[:, :, -1:], sin[:, :, -1:], x
            keys, values = buffer[number][:, :, :, :end]
            h = functional.scaled_dot_product_attention(_turned(q, cos, sin), keys, values, mask)
            x = x + functional.linear(h.transpose(1, 2).flatten(2), out)
            h = functional.rms_norm(x, (WIDTH,), norm2, self.eps)
            gate, h = functional.linear(h, up).chunk(2, -1)
            x = x + functional.linear(functional.silu(gate) * h, down)
        return functional.rms_norm(x[:, -1], (WIDTH,), self.norm, self.eps), before[:, -1]

    def logp(self, hidden: Any) -> Any:
        """Log-probabilities of all words from what the output layer reads."""
        return functional.linear(hidden, self.head).log_softmax(-1)

    @torch.inference_mode()
    def act(self, steps: Sequence[Any], generator: Any, at_once: int = 256) -> None:
        """Sample an action for every step; it also keeps ``hidden``, one state for each token."""
        order = sorted(range(len(steps)), key=lambda i: len(steps[i].prompt))  # little is padding
        for start in range(0, len(order), at_once):
            self._act([steps[i] for i in order[start : start + at_once]], generator)

    def _act(self, steps: Sequence[Any], generator: Any) -> None:
        first: dict[Any, int] = {}
        place = [first.setdefault((s.group, tuple(s.prompt)), len(first)) for s in steps]
        games = torch.tensor([int(game) for game, _ in first])
        ids, real = example.padded([prompt for _, prompt in first], "left")
        count, rows = self.real.shape[1], len(steps)
        start, longest = count + ids.shape[1], count + ids.shape[1] + example.LONGEST
        mask = torch.cat([self.real[games], real], 1)
        at = (mask.cumsum(1) - 1).clamp(min=0)[:, count:]
        buffer = self._buffer(len(first), longest)
        for part, prefix in zip(buffer, self.prefix, strict=True):
            part[:, :, :, :count] = prefix[:, games]
        causal = torch.ones(ids.shape[1], start).tril(count).bool()
        seen = mask[:, None, None, :].bool() & causal
        hidden, state = self._read(ids, at, buffer, count, seen)
        index, live = torch.tensor(place), torch.arange(rows)
        if len(first) < rows:
            buffer = [part[:, index] for part in buffer]
        seen = functional.pad(mask, (0, example.LONGEST), value=1).bool()[index][:, None, None, :]
        hidden, state, at = hidden[index].float(), state[index].float(), at[index, -1:]
        said = torch.zeros(rows, example.LONGEST, dtype=torch.long)
        kept = torch.zeros(rows, example.LONGEST, WIDTH)
        for t in range(example.LONGEST):
            kept[live, t] = hidden
            word = torch.multinomial(self.logp(hidden).exp(), 1, generator=generator)
            said[live, t] = word[:, 0]
            going = (said[live, : t + 1] != example.END).all(1)
            if t + 1 == example.LONGEST or not going.any():
                break
            if going.sum() < 0.7 * len(live):
                chosen = going.nonzero()[:, 0]
                buffer = [part[:, chosen] for part in buffer]
                live, word, at, seen = live[chosen], word[chosen], at[chosen], seen[chosen]
            at = at + 1
            now = seen[..., : start + t + 1]
            hidden = self._read(word, at, buffer, start + t, now)[0].float()
        for row, words, own, fingerprint in zip(
            steps, said.tolist(), kept, state.numpy(), strict=True
        ):
            length = [*words, example.END].index(example.END)
            text = " ".join(example.VOCABULARY[word] for word in words[:length])
            row.action, row.tokens = text.replace(" ,", ",") or "nothing", words[: length + 1]
            row.hidden, row.fingerprint = own[: length + 1].numpy(), fingerprint


def _turned(x: Any, cos: Any, sin: Any) -> Any:
    """Rotary position embedding."""
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat([-second, first], -1) * sin
