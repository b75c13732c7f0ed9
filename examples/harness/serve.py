"""Serve SmolLM2-135M on loopback with OpenAI's API: ``python serve.py 8911``.

A response has the token ids of prompt and completion and their log-probabilities, as vLLM's server
returns them when asked. One request is answered at a time; there is no streaming.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock
from typing import Any

import torch

from ascribe_lab.models import load_smollm2

MODEL, TOKENIZER = load_smollm2()
LOCK = Lock()


def complete(request: dict[str, Any]) -> dict[str, Any]:
    """Sample the answer to a chat."""
    prompt = TOKENIZER.apply_chat_template(
        request["messages"], add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    size = prompt["input_ids"].shape[1]
    with LOCK, torch.inference_mode():
        sampled = MODEL.generate(
            **prompt,
            do_sample=True,
            temperature=request.get("temperature") or 1.0,
            top_p=request.get("top_p") or 1.0,
            top_k=0,
            max_new_tokens=request.get("max_tokens") or request.get("max_completion_tokens") or 100,
            pad_token_id=TOKENIZER.eos_token_id,
            output_scores=True,
            return_dict_in_generate=True,
        )
        scores = MODEL.compute_transition_scores(
            sampled.sequences, sampled.scores, normalize_logits=True
        )[0].tolist()
    written = sampled.sequences[0, size:].tolist()
    ended = written[-1] == TOKENIZER.eos_token_id
    text = TOKENIZER.decode(written, skip_special_tokens=True)
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": text},
        "finish_reason": "stop" if ended else "length",
        "token_ids": written,
        "logprobs": {
            "content": [
                {"token": TOKENIZER.decode([token]), "logprob": score, "top_logprobs": []}
                for token, score in zip(written, scores, strict=True)
            ]
        },
    }
    usage = {"prompt_tokens": size, "completion_tokens": len(written)}
    return {
        "id": "chatcmpl",
        "object": "chat.completion",
        "created": 0,
        "model": "smollm2",
        "choices": [choice],
        "usage": usage | {"total_tokens": size + len(written)},
        "prompt_token_ids": prompt["input_ids"][0].tolist(),
    }


class Handler(BaseHTTPRequestHandler):
    """Answers chat completions."""

    def do_GET(self) -> None:
        """Say that the server is up."""
        self.answer({"status": "ok"})

    def do_POST(self) -> None:
        """Complete a chat."""
        self.answer(complete(json.loads(self.rfile.read(int(self.headers["Content-Length"])))))

    def answer(self, value: dict[str, Any]) -> None:
        """Send JSON."""
        content = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


if __name__ == "__main__":
    torch.manual_seed(0)
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
