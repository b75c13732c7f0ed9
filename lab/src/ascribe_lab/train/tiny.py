"""A run with a model of two layers and small counts, to see whether a file runs at all."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ascribe.steps.atomic import write_file
from ascribe_lab.models.loading import save_model
from ascribe_lab.pivots import Origin, candidate, write_turns
from ascribe_lab.train.config import Config
from ascribe_lab.train.load import changed

MODEL, SUMS, PIVOTS = "tiny_model", "sums.jsonl", "pivots.jsonl"
"""In the output folder: the model at the start, and what environments that need a file play."""

DATA = {
    "alfworld": ("games",),
    "webshop": ("folder", "small"),
    "search_qa": ("file", "retriever", "corpus"),
    "maths": ("file",),
    "pivots": ("file",),
}
"""Options of environments that name the user's data; without them they make up their own."""

DROPPED = "actor_rollout_ref.", "trainer.", "algorithm.filter_groups."
"""Beginnings of verl's keys about memory, speed and GPUs; and of dynamic sampling, which would
discard every group of a model that never wins, and sample for ever."""

TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def tiny_config(config: Config, engine: str) -> Config:
    """The config with a tiny model, two iterations and small counts, on a CPU.

    The recipe, the loss and the schedule stay. Its output goes to ``FOLDER_tiny``, and what it
    needs is written there: the model, and sums and pivots for environments that read a file.
    """
    folder = Path(f"{config.output.folder}_tiny")
    folder.mkdir(parents=True, exist_ok=True)
    _write_data(folder)
    environment, rollout, update = config.environment, config.rollout, config.update
    options = _options(environment.name, environment.options, folder.absolute())
    held_out = _options(environment.name, config.evaluation.options, folder.absolute())
    trl = engine == "trl"
    # A team takes the turns that its members need.
    turns = rollout.max_turns if environment.name == "team" else min(rollout.max_turns or 3, 3)
    verl = {k: v for k, v in config.engine.verl.items() if not k.startswith(DROPPED)}
    changes = {
        "model.path": str(write_tiny_model(folder / MODEL)),
        "model.dtype": "float32",
        "environment.options": options,
        "environment.style": "plain",
        "environment.pool": "serial",
        "environment.workers": 1,
        "rollout.groups": 2,
        "rollout.size": min(rollout.size, 2),
        "rollout.corrections": min(rollout.corrections, 2),
        "rollout.max_turns": turns,
        "rollout.max_tokens": 8,
        "rollout.context": 4096,
        "rollout.dtype": None,
        "evaluation.options": held_out,
        "evaluation.tasks": config.evaluation.tasks[:2],
        "evaluation.size": 1,
        "update.iterations": 2,
        "update.minibatches": 1 if trl else update.minibatches,
        "update.minibatch_rows": None if trl or update.minibatch_rows is None else 4,
        "update.rows_per_pass": 2,
        "output.folder": str(folder),
        "output.save_every": 1,
        "output.rollouts": True,
        "engine.trl": {"use_cpu": True, "bf16": False, "gradient_checkpointing": False},
        "engine.verl": verl if trl else {**verl, "trainer.device": "cpu"},
    }
    if config.model.lora is not None:
        changes |= {"model.lora.rank": 2, "model.lora.alpha": 4.0}
    if config.fingerprints.layer is not None:
        changes["fingerprints.layer"] = -1
    return changed(config, changes)


def _write_data(folder: Path) -> None:
    """Sums with their results, and turns at which an expert called a tool."""
    sums = [{"question": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(8)]
    write_file(folder / SUMS, "".join(json.dumps(each) + "\n" for each in sums))
    turns = []
    for n in range(8):
        call = json.dumps({"name": "add", "arguments": {"a": n, "b": 1}})
        history = [{"role": "user", "content": f"What is {n} + 1?"}]
        where = Origin("made_up.jsonl", f"line {n + 1}", 0, 1)
        turns.append(candidate(history, f"<tool_call>{call}</tool_call>", where))
    write_turns(folder / PIVOTS, turns)


def _options(name: str, options: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The options without the user's data."""
    kept = {k: v for k, v in options.items() if k not in DATA.get(name, ())}
    if name == "maths":
        kept |= {"file": str(folder / SUMS), "judge": "number"}
    if name == "pivots":
        kept["file"] = str(folder / PIVOTS)
    if name == "alfworld":
        kept["count"] = 2
    if name == "team" and "options" in kept:
        kept["options"] = _options(kept.get("environment", "maths"), kept["options"], folder)
    return kept


def write_tiny_model(folder: Path) -> Path:
    """A model of two layers that knows nothing, with a tokenizer of bytes."""
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    tokenizer = train_tokenizer(["What is 1 + 1? You are in a room. Your task is to: go."], 300)
    return save_model(random_llama(len(tokenizer), 4096), tokenizer, folder)


def train_tokenizer(texts: Iterable[str], size: int) -> Any:
    """Byte pairs and ChatML; the padding token is the end of a turn, as in SmolLM2."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|im_end|>",
        additional_special_tokens=special,
        chat_template=TEMPLATE,
    )


def imitate(chats: Sequence[Sequence[Mapping[str, Any]]], tools: Sequence[Any]) -> tuple[Any, Any]:
    """A model that has only learned to respond as in these chats, and its tokenizer, for TRL.

    They are in Qwen's form, with the calls of ``tools``. Each of their lines is one token, so that
    a turn is short.
    """
    import torch
    from trl import chat_template_utils as trl

    tokenizer = train_tokenizer([], 300)
    tokenizer.chat_template = trl.qwen2_5_chat_template
    trl.add_response_schema(tokenizer)  # how TRL reads the calls
    form = {"tools": tools, "chat_template": trl.get_training_chat_template(tokenizer)}
    text = "".join(tokenizer.apply_chat_template(chats, tokenize=False, **form))
    tokenizer.add_tokens(sorted(set(re.findall(r"<\|\w+\|>|[^\n]+?(?=<\|)|[^\n]+\n", text))))
    form |= {"return_dict": True, "return_assistant_tokens_mask": True}
    data = tokenizer.apply_chat_template(chats, padding=True, return_tensors="pt", **form)
    targets = torch.where(data["assistant_masks"].bool(), data["input_ids"], -100)
    model = random_llama(len(tokenizer), 1024).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    generator = torch.Generator().manual_seed(0)
    for _ in range(24):
        for rows in torch.randperm(len(chats), generator=generator).split(16):
            ids, mask = data["input_ids"][rows], data["attention_mask"][rows]
            model(ids, mask, labels=targets[rows]).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    return model, tokenizer


def random_llama(vocabulary: int, positions: int = 512) -> Any:
    """Two layers of width 64, in single precision, always with the same weights."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=positions,
        # Far from zero, so that attention is far from even.
        initializer_range=0.2,
        tie_word_embeddings=True,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=2,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return LlamaForCausalLM(config).eval()
