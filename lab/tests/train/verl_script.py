"""verl's ``ToolAgentLoop`` itself, with responses from a script in place of a server."""

import asyncio
import json
from functools import cache
from types import SimpleNamespace
from typing import Any

import ascribe_lab.train.verl.plugin  # noqa: F401 (before anything of verl)
from tests.tool_model import TEMPLATE

SIZE = "actor_rollout_ref.rollout.n"
CALL = '<tool_call>\n{"name": "%s", "arguments": %s}\n</tool_call>'


def call(name: str = "act", **arguments: Any) -> str:
    """A tool call, as the model writes it."""
    return CALL % (name, json.dumps(arguments))


@cache
def tokenizer() -> Any:
    from tests.tiny_model import train_tokenizer

    made = train_tokenizer([TEMPLATE, call(number=1, reward=0.5, text="You are in room 2.")], 400)
    made.chat_template = TEMPLATE
    return made


def act() -> Any:
    """A tool that notes what it gave: the reward and the state it is called with, or an error."""
    from verl.tools.base_tool import BaseTool
    from verl.tools.schemas import OpenAIFunctionToolSchema, ToolResponse

    class Act(BaseTool):  # type: ignore[misc]
        def __init__(self) -> None:
            function = {
                "name": "act",
                "description": "Act.",
                "parameters": {"type": "object", "properties": {}, "required": []},
            }
            schema = OpenAIFunctionToolSchema(type="function", function=function)
            super().__init__({}, schema)
            self.log: list[tuple[int, float]] = []
            """The turn, as the call names it, and the reward of each call that gave one."""

        async def execute(self, _: str, parameters: dict[str, Any], **__: Any) -> Any:
            await asyncio.sleep(parameters.get("sleep", 0))
            if "error" in parameters:
                raise RuntimeError(parameters["error"])
            reward = parameters.get("reward")
            if isinstance(reward, float | int):
                self.log.append((parameters["turn"], reward))
            facts = {"state": parameters["state"]} if "state" in parameters else {}
            return ToolResponse(text="ok" * parameters.get("size", 1)), reward, facts

    return Act()


class Script:
    """A server that says one text after another."""

    def __init__(self, texts: list[str], end: str | None = None) -> None:
        self.texts = iter(texts)
        self.end = tokenizer().eos_token if end is None else end

    async def generate(self, **_: Any) -> Any:
        from verl.workers.rollout.replica import TokenOutput

        ids = tokenizer()(next(self.texts) + self.end)["input_ids"]
        versions = {"global_steps": 0, "min_global_steps": 0, "max_global_steps": 0}
        return TokenOutput(token_ids=ids, log_probs=[-1.0] * len(ids), extra_fields=versions)


@cache
def stock_config() -> Any:
    """verl's whole configuration."""
    from hydra import compose, initialize_config_module

    with initialize_config_module("verl.trainer.config", version_base=None):
        return compose("ppo_trainer")


def verl_config(*overrides: str) -> Any:
    """The same with Ascribe's keys, and with those given, as in Hydra."""
    from omegaconf import OmegaConf

    made = OmegaConf.merge(OmegaConf.to_container(stock_config()), {})
    own = ("algorithm.adv_estimator=ascribe", "data.train_files=train.parquet", f"{SIZE}=2")
    given = [each.lstrip("+") for each in (*own, "ascribe.recipe=grpo", *overrides)]
    return OmegaConf.merge(made, OmegaConf.from_dotlist(given))


def play(texts: list[str], tool: Any, *overrides: str, end: str | None = None) -> Any:
    """What the loop makes of a script: verl's output of one episode."""
    from verl.experimental.agent_loop.agent_loop import DictConfigWrap, ToolListWrap
    from verl.experimental.agent_loop.tool_agent_loop import ToolAgentLoop
    from verl.utils.dataset.rl_dataset import RLHFDataset

    import ascribe.engines.verl.tools  # noqa: F401 (records the calls)

    rollout = "actor_rollout_ref.rollout"
    limits = (f"{rollout}.prompt_length=64", f"{rollout}.response_length=512")
    calls = f"{rollout}.multi_turn.max_parallel_calls=4"
    config = verl_config(*limits, calls, *overrides)

    async def run() -> Any:
        loop = ToolAgentLoop(
            trainer_config=DictConfigWrap(config),
            server_manager=Script(texts, end),
            tokenizer=tokenizer(),
            processor=None,
            dataset_cls=RLHFDataset,
            data_config=DictConfigWrap(config.data),
            tools=ToolListWrap(tool if isinstance(tool, list) else [tool]),
        )
        return await loop.run({}, raw_prompt=[{"role": "user", "content": "Begin."}])

    return asyncio.run(run())


class Batch(SimpleNamespace):
    """verl's batch, as far as it is looked at."""

    def __len__(self) -> int:
        return len(self.keys)


def as_batch(
    episodes: list[Any], scores: list[Any], monkeypatch: Any, generation_config: Any = None
) -> Batch:
    """The rows that verl makes of these episodes; an episode may be many, each with a score.

    Two in turn are members of a group.
    """
    import torch

    from ascribe.engines.verl import batch as batches
    from ascribe.engines.verl import loops, tools  # noqa: F401 (records the calls)

    rows: list[Any] = []
    keys = []
    for session, (episode, score) in enumerate(zip(episodes, scores, strict=True)):
        for number, output in enumerate(episode if isinstance(episode, list) else [episode]):
            output.reward_score = score[number] if isinstance(score, list) else score
            rows.append(output.as_dict())
            keys.append(f"group{session // 2}_{session}_{number}")
    names = ("prompts", "responses", "response_mask", "rm_scores")
    fields = {
        name: torch.nested.as_nested_tensor([row[name] for row in rows], layout=torch.jagged)
        for name in names
    }
    monkeypatch.setattr(batches, "fetch", lambda *_: fields)
    monkeypatch.setattr(batches, "extra_fields", lambda _: [row["extra_fields"] for row in rows])
    monkeypatch.setattr(loops, "copy_to_local", lambda _: None, raising=False)
    name = "get_generation_config"
    monkeypatch.setattr(loops, name, lambda _: generation_config, raising=False)
    tags = [{"min_global_steps": 0, "max_global_steps": 0} for _ in rows]
    return Batch(keys=keys, tags=tags, partition_id="train")
