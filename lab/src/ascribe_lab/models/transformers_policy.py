"""``TransformersPolicy``: a model of ``transformers`` in this process, on its current device.

Every request has its own random generator, seeded by the request, whatever else is in the batch. So
the same request gives the same sample, up to rounding, which may differ between batches. In float32
this changes almost nothing. In bfloat16, which has three digits, many samples diverge after some
tokens.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from typing import Any

from ascribe.sessions.endings import as_ids
from ascribe.steps.errors import InputError
from ascribe_lab.models.loading import load_causal_lm, packages
from ascribe_lab.models.policy import Completion, ModelPolicy, Sampling, TokenPrompt
from ascribe_lab.models.tokens import Chat, Message, PromptTooLongError, smaller

Tensor = Any
"""A torch tensor. Torch is not imported here but where it is used."""
Past = dict[tuple[int, ...], list[tuple[Tensor, Tensor]]]
"""Keys and values of every layer, [heads, tokens, size] each, by the tokens that were read."""
GROUPED = "ascribe_grouped_sdpa"
"""The name of ``_attend`` in transformers."""
KEPT_TOKENS = 65_536
"""Most tokens whose keys and values are kept for the next call: 3 GB for SmolLM2-135M."""


class TransformersPolicy(ModelPolicy):
    """Samples token by token with a cache of keys and values; finished rows leave the batch.

    The common prefix of a batch is read once, and so are equal prompts. All blocks of the model
    must use attention, because a model with a recurrent state cannot be padded.

    Args:
        model: a causal language model, which may be one that is being trained.
        tokenizer: its tokenizer, with a chat template.
        batch_size: most responses that are sampled at once.
        context: most tokens of prompt and response together, if below the model's own limit.
        growing: prompts go on from those of the last call and their responses, and weights do not
            change between calls. Then only what is new is read; on a CPU, because a GPU reads fast
            and its memory is scarce.
        chat_options: further ones of ``Chat``.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        batch_size: int = 64,
        context: int | None = None,
        growing: bool = False,
        **chat_options: Any,
    ) -> None:
        if batch_size < 1:
            raise InputError(f"batch_size must be at least 1, not {batch_size}")
        longest = getattr(model.config, "max_position_embeddings", None)
        ends = as_ids(model.generation_config.eos_token_id) | as_ids(model.config.eos_token_id)
        super().__init__(Chat(tokenizer, ends, smaller(context, longest), **chat_options))
        self.model = model
        self.batch_size = batch_size
        self.growing = growing
        self._past: Past = {}

    @classmethod
    def load(
        cls, folder: str | Path, *, dtype: str = "float32", device: str = "cpu", **options: Any
    ) -> "TransformersPolicy":
        """The policy of a model folder; see ``load_causal_lm``."""
        model, tokenizer = load_causal_lm(folder, dtype)
        return cls(model.to(device), tokenizer, **options)

    def probabilities(
        self, chats: Sequence[Sequence[Message]], responses: Sequence[str]
    ) -> list[float | None]:
        """For each chat, the geometric mean of the probabilities of the response's tokens.

        None where chat and response do not fit the model's context.
        """
        torch, _ = packages("actor")
        rows: dict[int, tuple[tuple[int, ...], list[int]]] = {}
        for index, (messages, response) in enumerate(zip(chats, responses, strict=True)):
            try:
                prompt, answer = self.chat.prompt(messages), self.chat.ids(response)
            except PromptTooLongError:
                continue
            if answer and self.chat.room(prompt, len(answer)) == len(answer):
                rows[index] = prompt, answer
        found: list[float | None] = [None] * len(chats)
        training = self.model.training
        self.model.eval()
        try:
            with torch.inference_mode():
                order = sorted(rows, key=lambda index: len(rows[index][0]))
                for start in range(0, len(order), self.batch_size):
                    batch = order[start : start + self.batch_size]
                    means = self._mean_logprobs([rows[index] for index in batch])
                    for index, mean in zip(batch, means, strict=True):
                        found[index] = math.exp(mean)
        finally:
            self.model.train(training)
        return found

    def _mean_logprobs(self, rows: list[tuple[tuple[int, ...], list[int]]]) -> list[float]:
        """Mean log-probability of the second ids of each row after the first ones."""
        torch, _ = packages("actor")
        width = max(len(prompt) + len(answer) for prompt, answer in rows)
        ids = torch.zeros(len(rows), width, dtype=torch.long)
        mask = torch.zeros(len(rows), width, dtype=torch.long)
        for row, (prompt, answer) in enumerate(rows):
            ids[row, : len(prompt) + len(answer)] = torch.tensor([*prompt, *answer])
            mask[row, : len(prompt) + len(answer)] = 1
        device = self.model.device
        logits = self.model(input_ids=ids.to(device), attention_mask=mask.to(device)).logits
        means = []
        for row, (prompt, answer) in enumerate(rows):
            at = logits[row, len(prompt) - 1 : len(prompt) + len(answer) - 1].float()
            logprobs = torch.log_softmax(at, dim=-1)
            tokens = torch.tensor(answer, device=device)
            means.append(float(logprobs.gather(1, tokens[:, None]).mean()))
        return means

    def _complete(self, prompts: Sequence[TokenPrompt], sampling: Sampling) -> list[Completion]:
        torch, _ = packages("actor")
        # Prompts with a common prefix share a batch, so that more of the prefix is read once.
        order = sorted(range(len(prompts)), key=lambda index: prompts[index].ids)
        completions: dict[int, Completion] = {}
        training = self.model.training
        self.model.eval()
        past, self._past = self._past, {}
        try:
            with torch.inference_mode(), _grouped_attention(self.model):
                for start in range(0, len(order), self.batch_size):
                    indices = order[start : start + self.batch_size]
                    batch = [prompts[index] for index in indices]
                    sampled = self._batch(batch, sampling, past)
                    completions.update(zip(indices, sampled, strict=True))
        finally:
            self.model.train(training)
        return [completions[index] for index in range(len(prompts))]

    def _batch(
        self, prompts: list[TokenPrompt], sampling: Sampling, past: Past
    ) -> list[Completion]:
        """Sample all responses of a batch, and keep what was read for the next call."""
        torch, _ = packages("actor")
        model = _CachedModel(self.model, past)
        logits = model.read([prompt.ids for prompt in prompts])
        device = self.model.device
        generators = [torch.Generator(device).manual_seed(prompt.seed) for prompt in prompts]
        ids: list[list[int]] = [[] for _ in prompts]
        logprobs: list[list[float]] = [[] for _ in prompts]
        ended = [False] * len(prompts)
        rows = list(range(len(prompts)))
        while rows:
            distribution = torch.log_softmax(logits.float(), dim=-1)
            if sampling.temperature == 0:
                tokens = distribution.argmax(dim=-1)
            else:
                noise = _exponential([generators[row] for row in rows], distribution)
                tokens = draw(distribution, noise, sampling)
            sampled = distribution.gather(1, tokens[:, None])[:, 0]
            for row, token, logprob in zip(rows, tokens.tolist(), sampled.tolist(), strict=True):
                ids[row].append(token)
                logprobs[row].append(logprob)
                ended[row] = token in self.chat.ends or self._stops(ids[row], sampling.stop)
            unfinished = [
                position
                for position, row in enumerate(rows)
                if not ended[row] and len(ids[row]) < prompts[row].limit
            ]
            for position in set(range(len(rows))).difference(unfinished):
                row = rows[position]
                self._keep(prompts[row].ids, ids[row], model, position)
            if 0 < len(unfinished) < len(rows):
                model.keep(unfinished)
            rows, tokens = [rows[position] for position in unfinished], tokens[unfinished]
            logits = model.step(tokens) if rows else None
        return [
            Completion(tuple(ids[r]), tuple(logprobs[r]), ended[r]) for r in range(len(prompts))
        ]

    def _keep(
        self, prompt: tuple[int, ...], response: list[int], model: "_CachedModel", row: int
    ) -> None:
        """Keep the keys and values of a row, if the next call can use them."""
        if not self.growing or self.model.device.type != "cpu":
            return
        ids = (*prompt, *response[:-1])  # the last token was sampled, but not read
        if sum(map(len, self._past)) + len(ids) <= KEPT_TOKENS:
            self._past[ids] = model.layers_of(row)

    def _stops(self, ids: list[int], stop: tuple[str, ...]) -> bool:
        """Whether the last token completes a stop text."""
        if not stop:
            return False
        # A token may be a single byte. One more on the left, because some tokenizers drop the space
        # before the first word.
        length = 1 + max(len(text.encode()) for text in stop)
        tail = self.chat.text(ids[-length:])
        return any(text in tail for text in stop)


@contextmanager
def _grouped_attention(model: Any) -> Iterator[None]:
    """On a CPU, sample without copies of keys and values for each head that shares them.

    Transformers makes these copies for every token if rows are padded.
    """
    _, transformers = packages("actor")
    if model.device.type != "cpu" or model.config._attn_implementation != "sdpa":
        yield
        return
    masks = transformers.AttentionMaskInterface
    transformers.AttentionInterface.register(GROUPED, _attend)
    masks.register(GROUPED, masks()["sdpa"])
    model.set_attn_implementation(GROUPED)
    try:
        yield
    finally:
        model.set_attn_implementation("sdpa")


def _attend(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor, **options: Any
) -> Any:
    """Attention, [rows, tokens, heads, size]; heads that share keys are as many queries of one."""
    torch, transformers = packages("actor")
    rows, heads, tokens, size = query.shape
    if tokens > 1 or (attention_mask is not None and attention_mask.shape[1] > 1):
        whole = transformers.AttentionInterface()["sdpa"]
        return whole(module, query, key, value, attention_mask, **options)
    grouped = query.reshape(rows, key.shape[1], -1, size)
    found = torch.nn.functional.scaled_dot_product_attention(
        grouped, key, value, attn_mask=attention_mask, scale=options.get("scaling")
    )
    return found.reshape(rows, 1, heads, value.shape[-1]), None


class _CachedModel:
    """A model with its cache of keys and values; rows are padded on the left.

    Columns are the same for all rows: first padding, then what was read of each prompt before, then
    padding, then the rest of the prompt, then the response. Positions do not count padding.
    """

    def __init__(self, model: Any, past: Past) -> None:
        torch, transformers = packages("actor")
        self.torch, self.model, self.past = torch, model, past
        self.cache = transformers.DynamicCache()
        self.mask: Tensor = None
        self.lengths: Tensor = None

    def read(self, prompts: Sequence[tuple[int, ...]]) -> Tensor:
        """Read the prompts; returns the logits of the next token, one row each."""
        torch, device = self.torch, self.model.device
        distinct = sorted(set(prompts))
        read = [self._longest(prompt) for prompt in distinct]
        shared = distinct[0][: common_prefix(distinct)]
        if shared and not any(read):
            self._forward(torch.tensor([shared], device=device))
            self.cache.batch_repeat_interleave(len(distinct))
            read = [shared] * len(distinct)
        elif any(read):
            self._load(read)
        tails = [prompt[len(start) :] for prompt, start in zip(distinct, read, strict=True)]
        before, width = max(map(len, read)), max(map(len, tails))
        padded = [[0] * (width - len(tail)) + list(tail) for tail in tails]
        mask = [
            [0] * (before - len(start))
            + [1] * len(start)
            + [0] * (width - len(tail))
            + [1] * len(tail)
            for start, tail in zip(read, tails, strict=True)
        ]
        self.mask = torch.tensor(mask, device=device)
        self.lengths = self.mask.sum(dim=1)
        positions = (self.mask.cumsum(dim=1) - 1).clamp(min=0)[:, before:]
        logits = self._forward(
            torch.tensor(padded, device=device), attention_mask=self.mask, position_ids=positions
        )
        if distinct == list(prompts):
            return logits
        row_of = {prompt: row for row, prompt in enumerate(distinct)}
        copies = [row_of[prompt] for prompt in prompts]
        self.keep(copies)
        return logits[copies]

    def _longest(self, prompt: tuple[int, ...]) -> tuple[int, ...]:
        """The most tokens of a prompt that were read before, without its last one."""
        found = (ids for ids in self.past if len(ids) < len(prompt) and prompt[: len(ids)] == ids)
        return max(found, key=len, default=())

    def _load(self, read: list[tuple[int, ...]]) -> None:
        """Put what was read before into the cache, with padding on the left."""
        width = max(map(len, read))
        some = next(self.past[ids] for ids in read if ids)
        for number, pair in enumerate(some):
            padded = []
            for which, example in enumerate(pair):
                heads, _, size = example.shape
                rows = example.new_zeros(len(read), heads, width, size)
                for row, ids in enumerate(read):
                    if ids:
                        rows[row, :, width - len(ids) :] = self.past[ids][number][which]
                padded.append(rows)
            self.cache.update(*padded, number)

    def layers_of(self, row: int) -> list[tuple[Tensor, Tensor]]:
        """Keys and values of a row, without padding."""
        real = self.mask[row].bool()
        return [(each.keys[row][:, real], each.values[row][:, real]) for each in self.cache.layers]

    def step(self, tokens: Tensor) -> Tensor:
        """Read one more token of each row."""
        self.mask = self.torch.cat([self.mask, self.mask.new_ones(len(tokens), 1)], dim=1)
        positions = self.lengths[:, None]
        self.lengths = self.lengths + 1
        return self._forward(tokens[:, None], attention_mask=self.mask, position_ids=positions)

    def keep(self, rows: list[int]) -> None:
        """Keep these rows, which may be repeated."""
        index = self.torch.tensor(rows, device=self.mask.device)
        self.cache.batch_select_indices(index)
        self.mask, self.lengths = self.mask[index], self.lengths[index]

    def _forward(self, ids: Tensor, **options: Any) -> Tensor:
        output = self.model(
            input_ids=ids, past_key_values=self.cache, use_cache=True, logits_to_keep=1, **options
        )
        return output.logits[:, -1]


def common_prefix(prompts: Sequence[tuple[int, ...]]) -> int:
    """How many tokens all prompts begin with; at least one of every prompt is left out."""
    first, last = min(prompts), max(prompts)  # what these share, all share
    pairs = takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False))
    return min(len(list(pairs)), min(map(len, prompts)) - 1)


def _exponential(generators: Sequence[Any], like: Tensor) -> Tensor:
    """Exponential random numbers, each row from its own generator, whatever the other rows are."""
    torch, _ = packages("actor")
    uniform = torch.empty_like(like)
    for row, generator in enumerate(generators):
        uniform[row].uniform_(generator=generator)
    return -uniform.log()


def draw(logprobs: Tensor, noise: Tensor, sampling: Sampling) -> Tensor:
    """One token for each row: the first to arrive in a race of exponential clocks.

    With probabilities p_k ∝ exp(logprob_k / temperature) and independent e_k from the exponential
    distribution, e_k / p_k is the smallest of all with probability p_k. Where rounding changes p a
    little, another token seldom wins. With top_p < 1 only the likeliest tokens take part: the
    fewest whose probabilities add up to top_p.

    Args:
        logprobs: (rows, vocabulary).
        noise: the e_k, of the same shape.
        sampling: temperature, above 0, and top_p.
    """
    torch, _ = packages("actor")
    probabilities = torch.softmax(logprobs / sampling.temperature, dim=-1)
    if sampling.top_p < 1:
        ranked, order = probabilities.sort(dim=-1, descending=True, stable=True)
        mass_before = ranked.cumsum(dim=-1) - ranked
        probabilities = torch.zeros_like(probabilities).scatter(
            1, order, ranked.masked_fill(mass_before >= sampling.top_p, 0.0)
        )
    return (probabilities / noise).argmax(dim=-1)
