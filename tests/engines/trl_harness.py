"""An agent that plays over HTTP, as OpenEnv gives it to TRL; OpenEnv captures its calls."""

import json
import re
import socket
from typing import Any
from urllib.request import Request, urlopen

from openenv.core.harness import (
    ResourceSession,
    ResourceSessionFactory,
    TrainingTrace,
    VerifyResult,
)
from openenv.core.harness.capture.contract import to_trace_entries
from openenv.core.harness.capture.export import export_session
from openenv.core.harness.capture.runner import CaptureServer

from tests.engines.trl_async_toys import move
from tests.engines.trl_tools import TASK


class Agent(ResourceSession):  # type: ignore[misc]
    """Goes from room to room. Once it has moved twice, it forgets all but the room it is in."""

    def __init__(self, server: CaptureServer, name: str, sampling: dict[str, Any]) -> None:
        self.server, self.rooms = server, list[int]()
        self.captured = server.registry.create(name, purpose="train", sampling=sampling)

    def wait_for_completion(self, timeout_s: float | None = None) -> int:
        """Play to the end."""
        messages = [{"role": "user", "content": f"{TASK} You are in room 0."}]
        while len(self.rooms) < 4:
            response = self._ask(messages)
            call = re.search(r'"room": (\d)', response)
            if call is None:
                break
            self.rooms.append(int(call[1]))
            result = move(self.rooms[-1])
            messages.append({"role": "assistant", "content": response})
            messages.append({"role": "tool", "content": result})
            if len(self.rooms) == 2:
                messages = [{"role": "user", "content": f"{TASK} {result}"}]
        return 0

    def _ask(self, messages: list[dict[str, str]]) -> str:
        request = Request(
            f"http://127.0.0.1:{self.server.port}/v1/chat/completions",
            json.dumps({"model": "any", "messages": messages}).encode(),
            {
                "Authorization": f"Bearer {self.captured.session_id}",
                "Content-Type": "application/json",
            },
        )
        with urlopen(request, timeout=60) as reply:
            content: str = json.load(reply)["choices"][0]["message"]["content"]
        return content

    def fetch_training_trace(self) -> TrainingTrace:
        """What the server captured."""
        document = export_session(self.captured, include_messages=True)
        return TrainingTrace.from_entries(to_trace_entries(self.captured.graph, document))

    def verify(self, transcript: Any, final_state: Any = None) -> VerifyResult:
        """The reward: how often it was in room 2."""
        return VerifyResult(env_reward=self.rooms.count(2) / 4, done=True)

    def initial_messages(self) -> list[Any]:
        """None: the agent has its own."""
        return []

    list_tools = initial_messages

    def call_tool(self, name: str, arguments: dict[str, Any]) -> Any:
        """Not called, for the agent moves by itself."""
        raise NotImplementedError

    def close(self) -> None:
        """Nothing is open."""


class Agents(ResourceSessionFactory):  # type: ignore[misc]
    """Agents of one model, with OpenEnv's server between them and the model's."""

    def __init__(self, url: str, sampling: dict[str, Any]) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.server = CaptureServer(llm_url=url, model="model", port=port, max_output_tokens=48)
        self.server.start()  # its thread ends with the process
        self.sampling = sampling

    def create(self, task: Any, seed: int | None = None, episode_id: str | None = None) -> Agent:
        """An agent for a session."""
        return Agent(self.server, str(episode_id), self.sampling)
