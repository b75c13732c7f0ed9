"""``ServedPolicy``: asks verl's rollout servers from a thread that plays an episode."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

from ascribe.models.model_policy import Drawn, ModelPolicy, Prompt
from ascribe.models.policy import Sampling
from ascribe.models.tokens import Chat


class ServedPolicy(ModelPolicy):
    """A policy for one episode: its turns go to one server, which keeps their common beginning.

    Args:
        chat: from messages to ids.
        client: verl's client of the servers.
        loop: the event loop that the client lives in; it must not be that of the calling thread.
        parameters: how verl samples; the limit of tokens and the stop texts are the episode's.
    """

    def __init__(
        self,
        chat: Chat,
        client: Any,
        loop: asyncio.AbstractEventLoop,
        parameters: Mapping[str, Any],
    ) -> None:
        super().__init__(chat)
        self._client, self._loop, self._parameters = client, loop, parameters
        self._name = uuid4().hex
        self.versions: list[int] = []
        """Of the weights that answered, one for each answer."""

    def _draw(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[Drawn]:
        asked = asyncio.run_coroutine_threadsafe(self._all(prompts, sampling), self._loop)
        return asked.result()

    async def _all(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[Drawn]:
        return await asyncio.gather(*(self._one(prompt, sampling) for prompt in prompts))

    async def _one(self, prompt: Prompt, sampling: Sampling) -> Drawn:
        parameters = {
            **self._parameters,
            "max_tokens": prompt.limit,
            "seed": prompt.seed,
            "stop": list(sampling.stop),
            "stop_token_ids": sorted(self.chat.ends),
        }
        answer = await self._client.generate(
            request_id=self._name, prompt_ids=list(prompt.ids), sampling_params=parameters
        )
        self.versions.append(answer.extra_fields.get("global_steps") or 0)
        ids = tuple(answer.token_ids)
        logprobs = tuple(answer.log_probs or ())
        return Drawn(ids, logprobs, ended=len(ids) < prompt.limit or ids[-1] in self.chat.ends)
