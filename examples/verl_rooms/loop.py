"""An agent loop of one's own for verl: the model moves four times, or until it calls nothing."""

import re
from typing import Any
from uuid import uuid4

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput


class RoomsLoop(AgentLoopBase):  # type: ignore[misc]
    """Plays an episode of the rooms, and tells Ascribe the state and the reward of each turn."""

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> AgentLoopOutput:
        """One episode as one sequence."""
        chat, name, mask, logprobs = list(row["raw_prompt"]), uuid4().hex, [], []
        prompt = ids = await self.ct_build_initial_tokens(chat)
        room, states, rewards = chat[0]["content"][-2], [], []
        while len(states) < 4:
            out = await self.server_manager.generate(
                name, prompt_ids=ids, sampling_params=sampling_params
            )
            args: Any = (ids, out.token_ids, mask, logprobs, out.log_probs)
            merged, mask, logprobs = await self.ct_merge_assistant_token(*args)
            text = self.tokenizer.decode(out.token_ids)
            call = re.search(r'"room": (\d)', text)
            states.append(f"room {room}")
            rewards.append(0.25 if call is not None and call[1] == "2" else 0.0)
            if call is not None and len(states) < 4:
                room, before = call[1], [*chat, {"role": "assistant", "content": text}]
                chat = [*before, {"role": "tool", "content": f"You are in room {room}."}]
                args = (before, chat, merged.token_ids, mask, logprobs)
                merged, mask, logprobs = await self.ct_merge_context_msg(*args)
            ids = merged.token_ids
            if call is None:
                break
        extra = {**out.extra_fields, "turn_states": states, "turn_rewards": rewards}
        done = {"response_logprobs": logprobs, "reward_score": sum(rewards), "extra_fields": extra}
        rows = {"prompt_ids": prompt, "response_ids": ids[len(prompt) :], "response_mask": mask}
        return AgentLoopOutput(**rows, **done, num_turns=len(states), metrics=AgentLoopMetrics())
