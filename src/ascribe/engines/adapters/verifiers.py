"""verifiers: advantages on the sampled tokens of the message graph, ``MessageNode.advantages``.

::

    from ascribe.engines.adapters import credit_batch
    from ascribe.engines.adapters.verifiers import VerifiersAdapter

    credit_batch(VerifiersAdapter(), episodes, "sbc")

A batch is a list of ``Episode``. Traces that failed, or are not trainable, take no part.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from ascribe.engines.adapters import ExampleEpisode, check_state
from ascribe.engines.options import Options
from ascribe.sessions import State, from_messages
from ascribe.sessions.formats.verifiers import put_traces, read_traces
from ascribe.sessions.reading.records import Record
from ascribe.steps.arrays import Floats
from ascribe.steps.table import StepTable

OPTIONS = (
    Options(
        source="verifiers.v1.configs.task.TaskConfig, which the adapter is not given",
        prefix="env.taskset.task.",
        applied={
            "rewards": "the reward of a trace is their weighted sum",
            "judges": "as rewards",
        },
        untouched=("stops", "metrics"),
    ),
    Options(
        source="verifiers.v1.graph.MessageNode, which a trainer fills",
        applied={"loss_weights": "beside the advantages, which the adapter alone sets"},
        untouched=(
            *("parent", "tools", "semantic_parents", "message", "sampled", "timestamp"),
            *("token_ids", "renderer_token_ids", "mask", "is_content", "logprobs", "advantages"),
            *("reference_logprobs", "trainer_logprobs", "entropies", "routed_experts"),
            "sampling_mask",
        ),
    ),
)
"""What becomes of verifiers' options; none would be wrong."""


@dataclass(frozen=True)
class VerifiersAdapter:
    """Episodes to steps, as the importer of ``traces.jsonl`` reads them, and advantages back.

    Attributes:
        state: what counts as the state of a step.
    """

    state: State = "observation"

    def __post_init__(self) -> None:
        check_state(self.state)

    def steps(self, batch: Sequence[Any]) -> tuple[StepTable, Any]:
        """One row for each message that the model sampled."""
        records: list[dict[str, Any]] = []
        conversations: list[Any] = []
        for episode in batch:
            record = episode.to_record()
            record["traces"] = [
                trace.to_record() for trace in episode.traces if trace.ok and trace.agent.trainable
            ]
            records.append(record)
            if record["traces"]:
                conversations += read_traces(Record(record, Path("episode")))
        ends = np.cumsum([0, *(len(each.steps) for each in conversations)])
        return from_messages(conversations, state=self.state), (records, ends)

    def put(self, batch: Sequence[Any], places: Any, advantages: Floats) -> Sequence[Any]:
        """The episodes; of every other node ``advantages`` is None, as verifiers has it."""
        records, ends = places
        parts = iter([advantages[i:j].tolist() for i, j in pairwise(ends)])
        for episode, record in zip(batch, records, strict=True):
            put_traces(record, parts)
            credited = {trace["id"]: trace["nodes"] for trace in record["traces"]}
            for trace in episode.traces:
                nodes = credited.get(trace.id, [{}] * len(trace.nodes))
                for node, written in zip(trace.nodes, nodes, strict=True):
                    node.advantages = written.get("advantages")
        return batch

    def example(self, episodes: Sequence[ExampleEpisode]) -> list[Any]:
        """Episodes with one trace, whose graph verifiers itself builds."""
        from verifiers.v1 import graph
        from verifiers.v1.configs.agent import WireAgentConfig
        from verifiers.v1.episode import Episode, GroupInfo
        from verifiers.v1.trace import AgentInfo, ModelCall, Trace, TraceTask, WireTaskData
        from verifiers.v1.types import AssistantMessage, Response, TurnTokens, UserMessage

        batch = []
        for example in episodes:
            task = TraceTask(type="Task", data=WireTaskData(prompt="x"), key=example.group)
            trace = Trace(task=task, agent=AgentInfo(config=WireAgentConfig()))
            chat: list[Any] = []
            tokens: list[int] = []
            for observation, response in example.turns:
                chat.append(UserMessage(content=" ".join(map(str, observation))))
                tokens += observation
                said = AssistantMessage(content=" ".join(map(str, response)))
                ids = TurnTokens(
                    prompt_ids=list(tokens),
                    completion_ids=list(response),
                    completion_logprobs=[-0.5] * len(response),
                )
                turn = graph.prepare_turn(trace, list(chat))
                reply = Response(
                    id="r", created=0, model="m", message=said, tokens=ids, finish_reason="stop"
                )
                trace.calls.append(ModelCall(node=turn.commit(reply), finish_reason="stop"))
                chat.append(said)
                tokens += response
            if example.failed:
                trace.record_error(RuntimeError("the sandbox is gone"))
            else:
                trace.record_reward("right", example.reward)
                trace.stop("max_turns" if example.truncated else "agent_completed")
                trace.ok = True
            group = GroupInfo(id=example.group)
            batch.append(Episode(task=task, traces=[trace], ok=trace.ok, group=group))
        return batch

    def advantages(self, result: Sequence[Any]) -> list[Sequence[float]]:
        """The advantages along each trace's branch, as a training sample has them."""
        return [episode.traces[0].branches[0].advantages or [] for episode in result]
