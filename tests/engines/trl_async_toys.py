"""Sessions for the tests of AscribeAsyncTrainer, a server that samples, packed rows on a CPU."""

import inspect
import json
import os
import queue
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.engines.trl_tools import TASK

MOVES = [[1, 2], [1, 0], [2], [0, 2, 2]]
"""Rooms that the sessions of a group go to, one call each."""
PROMPT = [{"role": "user", "content": TASK}]


def tasks() -> Any:
    """Tasks for TRL's own loop."""
    from datasets import Dataset

    return Dataset.from_list(
        [{"prompt": [{"role": "user", "content": f"{TASK} You are in room 0."}]}] * 4
    )


def move(room: int) -> str:
    """Go to a room.

    Args:
        room: its number.
    """
    return f"You are in room {room}."


def visits(completions: Any, **_: Any) -> list[float | None]:
    """The reward: how often a session went to room 2; none for one that did not move."""
    rooms = [[m["content"] for m in chat if m["role"] == "tool"] for chat in completions]
    return [each.count(move(2)) / 4 if each else None for each in rooms]


def chat(rooms: list[int]) -> list[dict[str, Any]]:
    """What a session wrote and was shown: a call for each room, and a last message."""
    messages: list[dict[str, Any]] = []
    for room in rooms:
        function = {"name": "move", "arguments": {"room": room}}
        call = {"role": "assistant", "content": "", "tool_calls": [{"function": function}]}
        messages += [call, {"role": "tool", "name": "move", "content": move(room)}]
    return [*messages, {"role": "assistant", "content": "Done."}]


def turns(tokenizer: Any, messages: list[dict[str, Any]], model: Any = None) -> list[Any]:
    """The turns of a session as TRL's loop records them, with the model's log-probabilities."""
    import torch
    from trl.experimental.async_grpo.async_rollout_worker import TurnRecord

    records = []
    for place, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        before = [*PROMPT, *messages[:place]]
        options = {"tokenize": True, "return_dict": False}
        prompt = tokenizer.apply_chat_template(before, add_generation_prompt=True, **options)
        whole = tokenizer.apply_chat_template([*before, message], **options)
        assert whole[: len(prompt)] == prompt
        output = whole[len(prompt) :]
        log_probs = [0.0] * len(output)
        if model is not None:
            with torch.no_grad():
                scores = model(torch.tensor([whole])).logits[0].log_softmax(-1)
            places = range(len(prompt) - 1, len(whole) - 1)
            log_probs = scores[list(places), output].tolist()
        records.append(TurnRecord(prompt, output, log_probs))
    return records


def loop(tokenizer: Any, credit: Any = None, kind: Any = None, **options: Any) -> Any:
    """TRL's rollout loop, in this process; with ``credit`` as AscribeAsyncTrainer makes it."""
    from accelerate import PartialState
    from trl.experimental.async_grpo.async_rollout_worker import _AsyncRolloutLoop

    from ascribe.engines.trl.async_trainer import crediting_loop

    PartialState(cpu=True)  # TRL's logger needs it
    options = {
        "model_name": "model",
        "dataset": tasks(),
        "reward_funcs": [visits],
        "processing_class": tokenizer,
        "eos_token_ids": [tokenizer.eos_token_id],
        "rollout_buffer": queue.Queue(),
        "model_version_value": SimpleNamespace(value=5),
        "heartbeat_value": SimpleNamespace(value=0.0),
        "failed_event": threading.Event(),
        "exception_info_queue": queue.Queue(),
        "metrics_queue": queue.Queue(),
        "num_generations": len(MOVES),
    } | options
    if "eos_token_ids" not in inspect.signature(_AsyncRolloutLoop).parameters:  # before TRL 1.15
        del options["eos_token_ids"]
    if credit is None:
        return _AsyncRolloutLoop(**options)
    made = crediting_loop(kind or _AsyncRolloutLoop, credit, **options)
    made.metrics_queue = options["metrics_queue"]
    return made


def group(sessions: list[list[Any]], chats: list[Any]) -> Any:
    """A group as TRL's loop passes it on: the rows of each session, and its messages."""
    from trl.experimental.async_grpo.async_rollout_worker import RolloutGroup

    return RolloutGroup(
        prompts=[PROMPT] * len(chats),
        reward_kwargs={},
        completions=chats,
        completions_ids=[[]] * len(chats),
        completions_sequences=sessions,
        tool_call_counts=[1] * len(chats),
        tool_failure_counts=[0] * len(chats),
        model_version=3,
        group_id=7,
        env_rewards=[None] * len(chats),
        rollout_rewards=[None] * len(chats),
    )


def dense_attention(
    module: Any,
    query: Any,
    key: Any,
    value: Any,
    attention_mask: Any,
    *,
    tree_kv_index: Any,
    tree_cu_seqlens_q: Any,
    tree_cu_seqlens_k: Any,
    scaling: float | None = None,
    **_: Any,
) -> tuple[Any, None]:
    """What TRL's kernel computes on a GPU: each segment of the trie attends to its own path."""
    import torch

    share = query.shape[1] // key.shape[1]
    keys, values = (each[0].repeat_interleave(share, 0) for each in (key, value))
    parts = []
    for at in range(len(tree_cu_seqlens_q) - 1):
        mine = query[0, :, tree_cu_seqlens_q[at] : tree_cu_seqlens_q[at + 1]]
        path = tree_kv_index[tree_cu_seqlens_k[at] : tree_cu_seqlens_k[at + 1]]
        size, length = mine.shape[1], len(path)
        seen = torch.ones(size, length, dtype=torch.bool).tril(length - size)
        scores = (mine @ keys[:, path].transpose(1, 2)) * scaling
        parts.append(scores.masked_fill(~seen, -torch.inf).softmax(-1) @ values[:, path])
    return torch.cat(parts, dim=1).transpose(0, 1)[None], None


class Published:
    """The trainer's weights for the server below, by the protocol of ``weight_transfer``."""

    def __init__(self, model: Any) -> None:
        self.model, self.syncs = model, 0

    def send_weights(self, iterator: Iterator[tuple[str, Any]]) -> None:
        """Copy each parameter."""
        self.model.load_state_dict(dict(iterator), strict=False)
        self.syncs += 1

    def pause(self) -> None:
        """Nothing to do, as for the others: the server samples one token at a time."""

    init_weight_transfer = resume = destroy = pause


@contextmanager
def serve(model: Any, tokenizer: Any) -> Iterator[str]:
    """A server on the loopback address with the endpoints of vLLM that TRL and OpenEnv call."""
    import torch

    def sample(prompt: list[int], count: int) -> dict[str, Any]:
        ids: list[int] = []
        log_probs: list[float] = []
        new, past = prompt, None
        while len(ids) < count and new != [model.config.eos_token_id]:
            with torch.no_grad():
                output = model(torch.tensor([new]), past_key_values=past, use_cache=True)
            scores, past = output.logits[0, -1].log_softmax(-1), output.past_key_values
            new = [int(torch.multinomial(scores.exp(), 1))]
            ids += new
            log_probs.append(float(scores[new[0]]))
        return {"token_ids": ids, "logprobs": {"token_logprobs": log_probs}}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._reply({"data": [{"max_model_len": model.config.max_position_embeddings}]})

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            assert asked["return_token_ids"]
            if self.path == "/v1/completions":
                self._reply({"choices": [sample(asked["prompt"], asked["max_tokens"])]})
                return
            assert self.path == "/v1/chat/completions"
            prompt = tokenizer.apply_chat_template(
                asked["messages"], add_generation_prompt=True, tokenize=True, return_dict=False
            )
            choice = sample(prompt, asked["max_tokens"])
            ids = choice["token_ids"]
            pairs = zip(ids, choice.pop("logprobs")["token_logprobs"], strict=True)
            entries = [{"token": f"token_id:{each}", "logprob": value} for each, value in pairs]
            text = tokenizer.decode(ids, skip_special_tokens=True)
            choice |= {
                "index": 0,
                "logprobs": {"content": entries},
                "message": {"role": "assistant", "content": text},
                "finish_reason": "stop" if ids[-1] == tokenizer.eos_token_id else "length",
            }
            self._reply({"prompt_token_ids": prompt, "choices": [choice]})

        def _reply(self, value: Any) -> None:
            body = json.dumps(value).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def vllm(folder: Path) -> Iterator[str]:
    """A real server of vLLM on the CPU, for a model and its adapters."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # A prompt that is computed in parts resets the seed of its request, which fails on a CPU.
    arguments = "--enforce-eager --dtype float32 --max-model-len 512 --max-num-batched-tokens 16384"
    adapters = "--host 127.0.0.1 --enable-lora --max-lora-rank 8 --max-loras 4"
    settings = {
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_SERVER_DEV_MODE": "1",
        "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1",
    }
    module = f"-m vllm.entrypoints.openai.api_server --port {port} {arguments} {adapters}"
    server = subprocess.Popen(
        [sys.executable, *module.split(), "--model", str(folder)], env=os.environ | settings
    )
    try:
        yield f"http://127.0.0.1:{port}"  # TRL waits until it is ready
    finally:
        server.terminate()
        server.wait()
