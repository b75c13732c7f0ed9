"""An environment of verifiers 0.4: guess a number, with hints as user turns."""

import httpx
import verifiers.v1 as vf
from verifiers.v1.configs.harness import HarnessConfig
from verifiers.v1.dialects.chat import message_to_wire
from verifiers.v1.harness import Harness
from verifiers.v1.runtimes import ProgramResult

__all__ = ["ChatHarness", "GuessEnv", "GuessTaskset"]


class ChatHarness(Harness[HarnessConfig]):
    """One request for each turn, in this process."""

    APPENDS_SYSTEM_PROMPT = True
    SUPPORTS_RESUME = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(self, ctx, trace, runtime, endpoint, secret, mcp_urls, data):
        prompt = data.prompt
        if isinstance(prompt, str):
            messages = [{"role": "user", "content": prompt}]
        else:
            messages = [message_to_wire(message) for message in prompt]
        async with httpx.AsyncClient(trust_env=False) as client:
            reply = await client.post(
                f"{endpoint}/chat/completions",
                headers={"Authorization": f"Bearer {secret}"},
                json={"model": ctx.model, "messages": messages},
            )
        reply.raise_for_status()
        return ProgramResult(exit_code=0, stdout="", stderr="")


class GuessData(vf.TaskData):
    number: int


class GuessTask(vf.Task[GuessData, vf.State, vf.TaskConfig]):
    pass


class GuessTaskset(vf.Taskset[GuessTask, vf.TasksetConfig]):
    def load(self):
        for number in (3, 6):
            prompt = f"Riddle {number % 4}: which number from 1 to 8?"
            yield GuessTask(GuessData(prompt=prompt, number=number), self.config.task)


class GuessEnvConfig(vf.EnvConfig):
    player: vf.AgentConfig = vf.AgentConfig(
        harness={"id": "verifiers-guess"}, runtime={"type": "subprocess"}
    )


class GuessEnv(vf.Env[GuessEnvConfig]):
    async def run(self, task, agents):
        won = 0.0
        async with agents.player.interaction(task) as interaction:
            segment = await interaction.turn()
            for _ in range(2):
                guess = int(segment.last_reply)
                if guess == task.data.number:
                    break
                hint = "higher" if guess < task.data.number else "lower"
                segment = await interaction.turn(f"It is {hint} than {guess}.")
            won = float(segment.last_reply == str(task.data.number))
        interaction.trace.record_reward("won", won)
