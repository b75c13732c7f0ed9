"""``EpisodeTrainer``: Ascribe's environments and agents on ``AscribeTrainer``.

TRL's own loop keeps one growing chat for each episode. The papers' agents get a new prompt for each
decision, with a short memory. So this trainer plays the episodes itself, and then lets TRL score
and learn the rows: one for each decision, or one for decisions whose prompts continue each other.

What TRL calls a prompt is here a group: a task with a seed, played ``num_generations`` times. An
iteration plays ``generation_batch_size`` episodes; ``per_device_train_batch_size`` is the number of
rows in one pass over the model.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from inspect import signature
from typing import Any

import numpy as np
import torch
from accelerate.utils import gather_object
from datasets import Dataset
from trl import GRPOConfig
from trl.models import unwrap_model_for_generation

from ascribe.engines.inputs import refuse_unknown
from ascribe.engines.trl.trainer import AscribeTrainer, Sequences, Tensors, check_trl
from ascribe.estimators import DEFAULT, Recipe
from ascribe.groups.fingerprints import FloatMatrix
from ascribe.sessions import Merged, Spans, merge
from ascribe.steps.arrays import Bools, Floats
from ascribe.steps.errors import InputError
from ascribe_lab.agents import Agent
from ascribe_lab.models import ModelPolicy, TransformersPolicy
from ascribe_lab.models.policy import AnswerScoring
from ascribe_lab.models.vllm_policy import reload_on_cpu
from ascribe_lab.rollout import FailurePolicy, Rollout, Sampling, SamplingPolicy, Setup
from ascribe_lab.rollout.record import States
from ascribe_lab.train.chat import ChatPolicy, whole_chat
from ascribe_lab.train.config import Layout
from ascribe_lab.train.corrections import (
    Corrections,
    correction_problem,
    judged_responses,
    with_corrections,
)
from ascribe_lab.train.episodes import Player, columns_of, episode_specs, join_rollouts, task_rows
from ascribe_lab.train.iterations import (
    Iteration,
    LocalRollout,
    credit_iteration,
    episode_metrics,
    iteration_metrics,
    trl_metrics,
    without_texts,
    write_rollouts,
)
from ascribe_lab.train.trl.arguments import SUCCESS, WAITING, refuse_unsupported
from ascribe_lab.train.trl.policies import SamplingCopy, TeamAdapters, TeamPolicy, TrlPolicy

BY_ROW = ("grpo", "sapo", "luspo", "dr_grpo")
"""Losses that TRL averages over the rows of a pass; it divides the others by a count of tokens."""

OF_REWARDS = ("reward", "frac_reward")
"""Beginnings of the names of TRL's metrics of rewards; here rewards belong to episodes."""

EPISODE_HOOKS = {
    "_compute_loss": ("model", "inputs"),
    "_dist": (),
}
"""Private names of ``GRPOTrainer`` besides those of ``AscribeTrainer``."""
VLLM_HOOKS = {"_iter_named_params": ()}
"""Those of its ``VLLMGeneration``."""


class EpisodeTrainer(AscribeTrainer):
    """AscribeTrainer that plays episodes in Ascribe's environments.

    There is no ``train_dataset`` and no reward function: tasks and rewards come from the
    environment. What is not listed is AscribeTrainer's.

    Args:
        model: as GRPOTrainer.
        args: as GRPOTrainer; ``max_steps`` must be given.
        setup: the environment, its options, the style of prompts, and the pool.
        recipe: how credit is computed: a recipe, or the name of one.
        max_turns: decisions after which an episode is cut; None: the environment's own limit.
        episode_limit: seconds in the environment after which an episode fails; None: no limit.
        layout: ``step``: a row for each decision. ``trajectory``: one row for decisions whose
            prompts continue each other, which those of a whole chat do.
        agent: in place of the setup's.
        tasks: numbers of the tasks to play; None: each group's seed draws its own.
        eval_tasks: numbers of the tasks to evaluate on, each played ``num_generations_eval`` times.
        eval_setup: their environment, such as one of another split; None: that of training.
        eval_temperature: at which they are sampled; None: that of training.
        failures: what to do about episodes that fail.
        states: what the state of a step is: the ``observation``, or the ``environment``'s key.
        stop: a response ends after any of these texts.
        context: tokens that prompt and response may have together; None: what the model can.
        sampling_dtype: type of a copy of the model that samples in its place, ``bfloat16`` or
            ``float16``; None: no copy.
        corrections: of wrong responses, for the recipe ``ibpo``; None: none are played.
        agents: names of a team's agents: each gets an adapter like ``peft_config``'s, and one of
            them learns in each iteration, in turns; empty: all learn the same weights at once.

    Raises:
        ValueError: for arguments that would be without effect or give a wrong update.
    """

    def __init__(
        self,
        model: Any,
        args: GRPOConfig,
        *,
        setup: Setup,
        recipe: Recipe | str = DEFAULT,
        max_turns: int | None = None,
        episode_limit: float | None = None,
        layout: Layout = "step",
        agent: Agent | None = None,
        tasks: Sequence[int] | None = None,
        eval_tasks: Sequence[int] = (),
        eval_setup: Setup | None = None,
        eval_temperature: float | None = None,
        failures: FailurePolicy = FailurePolicy(),  # noqa: B008 (frozen)
        states: States = "observation",
        stop: Sequence[str] = (),
        context: int | None = None,
        sampling_dtype: str | None = None,
        corrections: Corrections | None = None,
        agents: Sequence[str] = (),
        **others: Any,
    ) -> None:
        refuse_unsupported(args)
        if agents and hasattr(model, "peft_config"):
            raise InputError("agents need a model without adapters, since each gets a fresh one")
        refuse_unknown("layout", layout, Layout)
        refuse_unknown("states", states, States)
        self.layout, self.states, self.context = layout, states, context
        turns = setup.turns(max_turns)
        self._has_turn_rows = layout == "step" or turns == 1
        scoring = not (args.use_vllm or agents) and layout == "step"  # by the model, chat by chat
        self._of_environment = (
            "entropy",
            "corrects",
            *columns_of(setup.environment),
            *["score"] * scoring,
        )
        steps = args.max_steps * args.gradient_accumulation_steps
        iterations = -(-steps // (args.steps_per_generation * args.num_iterations))
        groups = iterations * args.generation_batch_size // args.num_generations
        rows = task_rows(groups, args.seed, "train", tasks)
        self._task_of = {row["group"]: row["task"] for row in rows}
        held_out = task_rows(len(eval_tasks), args.seed, "eval", eval_tasks)
        super().__init__(
            model,
            environment_reward,
            args,
            recipe=recipe,
            train_dataset=Dataset.from_list(rows),
            eval_dataset=Dataset.from_list(held_out) if held_out else None,
            **others,
        )
        deepspeed = self.accelerator.state.deepspeed_plugin
        if self.is_fsdp_enabled or (deepspeed is not None and deepspeed.zero_stage == 3):
            raise InputError(
                f"{WAITING}: use data parallel processes, or AscribeTrainer with TRL's generation"
            )
        check_trl(self, EPISODE_HOOKS)
        if self.use_vllm and self.vllm_mode == "colocate" and self.accelerator.device.type == "cpu":
            check_trl(self.vllm_generation, VLLM_HOOKS)
            self.vllm_generation.sync_weights = partial(_sync_on_cpu, self.vllm_generation)
        if self.aux_loss_enabled:
            raise InputError("no load-balancing loss here: set router_aux_loss_coef=0.0")
        # The rows are drawn already, in an order that a resumed run must find again.
        self.shuffle_dataset = False
        self.scores = "score" in self.recipe.columns
        played_in = setup.with_expert() if self.scores else setup
        self.corrections = corrections
        count = corrections.count if corrections else 0
        if problem := correction_problem(self.recipe, count, turns):
            raise InputError(f"corrections: {problem}")
        chosen = agent or (setup.agent if layout == "step" else whole_chat(setup.agent))
        agent = corrections.agent(chosen) if corrections else chosen
        sampling = Sampling(args.temperature, args.top_p, args.max_completion_length, tuple(stop))
        slots = args.per_device_train_batch_size * args.steps_per_generation
        if held_out:
            slots = max(slots, args.per_device_eval_batch_size)
        plays = (turns, failures, slots, episode_limit)
        self.player = Player(played_in, agent, sampling, *plays)
        if eval_temperature is not None:
            sampling = replace(sampling, temperature=eval_temperature)
        self.eval_player = Player(eval_setup or setup, agent, sampling, *plays)
        self._adapters = self._team(agents) if agents else None
        self._copy = None if sampling_dtype is None else SamplingCopy(sampling_dtype)
        self._played: Any = None
        self._held_out: list[LocalRollout] = []
        """Of all processes, in the batches of an evaluation so far."""

    def _team(self, agents: Sequence[str]) -> TeamAdapters:
        missing = {
            "peft_config, for there to be adapters": not hasattr(self.model, "peft_config"),
            "layout='step', since a row has one agent": self.layout != "step",
            "a recipe without fingerprints, which differ by agent": self.layer is not None,
            "one process": self.accelerator.num_processes > 1,
        }
        for requirement, is_missing in missing.items():
            if is_missing:
                raise InputError(f"agents need {requirement}")
        return TeamAdapters(self.model, agents)

    def create_optimizer(self, *given: Any, **options: Any) -> Any:
        """As GRPOTrainer's, for the adapters of all agents."""
        if self._adapters is None:
            return super().create_optimizer(*given, **options)
        self._adapters.unfreeze()
        optimizer = super().create_optimizer(*given, **options)
        self._adapters.choose(self._adapters.agents[0])
        return optimizer

    def train(self, resume_from_checkpoint: str | bool | None = None, **options: Any) -> Any:
        """As AscribeTrainer's; environments are closed at the end."""
        try:
            return super().train(resume_from_checkpoint, **options)
        finally:
            self.player.close()

    def evaluate(self, *given: Any, **options: Any) -> dict[str, float]:
        """As GRPOTrainer's: plays ``eval_tasks`` and logs how the episodes went."""
        self._held_out = []
        self._metrics["eval"].clear()
        try:
            metrics: dict[str, float] = super().evaluate(*given, **options)
        finally:
            self.eval_player.close()
        metrics.setdefault(SUCCESS, float("nan"))  # of no episodes, since all failed
        return metrics

    def prediction_step(
        self,
        model: Any,  # noqa: ARG002 (the policy samples from it)
        inputs: list[dict[str, Any]],
        *_: Any,
        **__: Any,
    ) -> tuple[Any, None, None]:
        """Play held-out tasks, and log how the episodes went; the loss is 0."""
        groups, local = self._play(inputs, training=False)
        self._held_out += gather_object([self._to_send(groups, local, None)])
        episodes = join_rollouts([part.rollout for part in self._held_out])
        # TRL takes the mean over batches, which may differ in size: so there is one value.
        self._metrics["eval"].clear()
        told = episode_metrics(episodes) | trl_metrics(episodes)
        self._metrics["eval"].update({name: [value] for name, value in told.items()})
        return torch.zeros((), device=self.accelerator.device), None, None

    # An iteration: play, let TRL score the rows, credit.

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> Tensors:
        with self._clock("rollout"):
            groups, local = self._play(inputs, training=True)
        learns = self._learns(local)
        merged = self._merged(local)
        spans = merged.spans
        with self._clock("logprobs"):
            batch = self._scored(local, merged)
        with self._clock("credit"):
            iteration, mine = self._credited_episodes(groups, local, spans)
        learning, signal = iteration.learned[mine] & learns, iteration.signal[mine]
        counted = [n for n, steps in enumerate(merged.rows) if learning[steps[0]]]
        # Under a KL penalty rows without advantage move the model too.
        chosen = [n for n in counted if self.beta != 0.0 or signal[merged.rows[n]].any()]
        tokens = int((spans.end - spans.start)[np.isin(spans.sequence, counted)].sum())
        sums = gather_object([(len(counted), tokens, int(learning.sum()), len(chosen))])
        row_counts, token_counts, step_counts, chosen_counts = zip(*sums, strict=True)
        batch["advantages"] = self._on_tokens(iteration.advantage[mine], spans, batch)
        parts = int(self.args.steps_per_generation)
        size = max(1, -(-max(chosen_counts) // parts)) * parts
        # After the rows stand empty ones.
        empty = len(merged.rows)
        places = torch.tensor(chosen + [empty] * (size - len(chosen)))
        batch = {name: value[places] for name, value in batch.items() if value.ndim}
        batch["num_items_in_batch"] = torch.tensor(sum(token_counts))
        batch["rows_in_batch"] = torch.tensor(sum(row_counts))
        self._report_episodes(iteration, sum(row_counts), sum(chosen_counts), size)
        self._log_completions(local, iteration.advantage[mine])
        mean = sum(token_counts) / max(1, sum(step_counts))
        self._note({"completions/mean_length": mean})
        return {name: value.to(self.accelerator.device) for name, value in batch.items()}

    def _merged(self, local: Rollout) -> Merged:
        """The rows: one for each step, or one for steps whose prompts continue each other."""
        samples = [step.sample for step in local.steps]
        if any(not sample.response_ids for sample in samples):
            raise InputError("the policy gave no token ids to learn from")
        names = [t.name for t in local.trajectories for _ in t.steps]
        return merge(
            [sample.prompt_ids for sample in samples],
            [sample.response_ids for sample in samples],
            names if self.layout == "trajectory" else range(len(names)),
        )

    def _scored(self, local: Rollout, merged: Merged) -> Tensors:
        """TRL's batch of the rows, with masks and log-probabilities, and empty rows after them.

        Its advantages are to be replaced: rewards belong to episodes, and TRL is given none.
        """
        first = [merged.spans.start[steps[0]] for steps in merged.rows]
        # All processes make the same number of passes.
        empty = max(gather_object([len(first)])) - len(first) + 1
        blank = [[self._texts.pad_token_id]] * empty
        played = Sequences(
            [ids[:n].tolist() for ids, n in zip(merged.tokens, first, strict=True)] + blank,
            [ids[n:].tolist() for ids, n in zip(merged.tokens, first, strict=True)] + blank,
            [m[n:].astype(int).tolist() for m, n in zip(merged.mask, first, strict=True)]
            + [[0]] * empty,
        )
        logprobs = None
        if self.use_vllm:
            logprobs = [[0.0] * len(ids) for ids in played.completions]
            for step, row, start in zip(
                local.steps, merged.spans.sequence, merged.spans.start, strict=True
            ):
                at = int(start - first[row])
                logprobs[row][at : at + len(step.sample.logprobs)] = step.sample.logprobs
        texts = [""] * len(played.prompts)
        self._played = (*vars(played).values(), texts, logprobs, {}, None, [])
        metrics = self._metrics["train"]
        own = {name: [*metrics[name]] for name in metrics if name.startswith(OF_REWARDS)}
        batch = self._scored_by_trl([{"prompt": ""} for _ in texts])
        for name in [name for name in metrics if name.startswith(OF_REWARDS)]:
            del metrics[name]
        metrics.update(own)
        return batch

    def _generated_by_trl(self, prompts: list[Any]) -> Any:  # noqa: ARG002 (they are played)
        return self._played

    @property
    def _rows_are_turns(self) -> bool:
        return self._has_turn_rows

    def _calculate_rewards(self, inputs: Any, *_: Any, **__: Any) -> Any:
        every = len(inputs) * self.accelerator.num_processes
        members = -(-every // self.num_generations) * self.num_generations
        return torch.zeros(members, 1, device=self.accelerator.device)

    def _learns(self, local: Rollout) -> Bools:
        """For each step whether its agent learns in this iteration; activates its adapter."""
        if self._adapters is None:
            return np.ones(len(local.steps), dtype=np.bool_)
        agent = self._adapters.learner(self._step // self._steps_of_iteration)
        self._adapters.choose(agent)
        return np.array([step.agent == agent for step in local.steps], dtype=np.bool_)

    def _play(
        self, inputs: list[dict[str, Any]], *, training: bool
    ) -> tuple[tuple[str, ...], Rollout]:
        """The groups of the rows of this process, and what was played of them."""
        groups = tuple(row["group"] for row in inputs)
        others = gather_object([groups])[: self.accelerator.process_index]
        earlier = [] if training else [part.groups for part in self._held_out]
        before = [name for names in earlier + others for name in names]
        size = self.num_generations if training else self.num_generations_eval
        # With several processes the last batch is filled up with tasks that were played already.
        mine = [spec for spec in episode_specs(inputs, before) if spec.member < size]
        with self._sampling_policy() as sampling:
            policy: SamplingPolicy = sampling
            if self.scores and training:
                assert isinstance(sampling, TransformersPolicy)
                policy = AnswerScoring(sampling, self.player.agent.render)
            player = self.player if training else self.eval_player
            played = player.play(mine, size, policy) if mine else join_rollouts([])
            if self.corrections is not None and training:
                responses = gather_object(judged_responses(played, mine, self.recipe))
                played = with_corrections(
                    self.player,
                    played,
                    mine,
                    responses,
                    self.corrections,
                    size=size,
                    policy=policy,
                )
        return groups, played

    @contextmanager
    def _sampling_policy(self) -> Iterator[SamplingPolicy]:
        """The policy of the episodes: the model with its weights gathered, or TRL's vLLM."""
        chat = {"context": self.context, "template_options": self.chat_template_kwargs}
        if self.use_vllm:
            yield self._keeping_tokens(TrlPolicy(self, **chat))
            return
        given = {"gather_deepspeed3_params": self.args.ds3_gather_for_generation}
        name = "gradient_checkpointing_kwargs"
        if name in signature(unwrap_model_for_generation).parameters:  # since TRL 1.16
            given[name] = getattr(self.args, name)
        with (
            unwrap_model_for_generation(self.model_wrapped, self.accelerator, **given) as model,
            self._dist.summon_full_params(self.model_wrapped, recurse=False),
        ):
            sampler = model if self._copy is None else self._copy.of(model)
            growing = self.layout == "trajectory"
            own = TransformersPolicy(sampler, self._texts, growing=growing, **chat)
            if self._adapters is not None:
                with self._adapters.restored():
                    yield TeamPolicy(own, self._adapters)
            else:
                yield self._keeping_tokens(own)

    def _keeping_tokens(self, policy: ModelPolicy) -> SamplingPolicy:
        """The policy, which keeps the tokens of a chat if a trajectory is to be one row."""
        return ChatPolicy(policy) if self.layout == "trajectory" else policy

    def _to_send(
        self,
        groups: tuple[str, ...],
        local: Rollout,
        vectors: FloatMatrix | None,
        columns: Mapping[str, Floats] | None = None,
    ) -> LocalRollout:
        """What this process sends to the others."""
        if self.dump_dir is None or not self.model.training:
            local = replace(local, trajectories=tuple(map(without_texts, local.trajectories)))
        return LocalRollout(groups, local, vectors, columns or {})

    def _credited_episodes(
        self, groups: tuple[str, ...], local: Rollout, spans: Spans
    ) -> tuple[Iteration, slice]:
        """The credit of all processes' steps, and which of them are of this process."""
        vectors = None
        if self._vectors is not None:  # in the order of rows, and of turns in each
            vectors = np.empty_like(self._vectors)
            vectors[np.lexsort((spans.turn, spans.sequence))] = self._vectors
        mine = self._to_send(groups, local, vectors, self._columns(spans))
        played = gather_object([mine])
        iteration = credit_iteration(
            played,
            self.recipe,
            size=self.num_generations,
            failures=self.player.failures,
            on_problem=self.check,
            states=self.states,
            history=self._history,
            tasks=self._task_of,
        )
        self._carry(iteration)
        first = sum(part.steps for part in played[: self.accelerator.process_index])
        return iteration, slice(first, first + mine.steps)

    # The update.

    def compute_loss(
        self,
        model: Any,
        inputs: Tensors,
        return_outputs: bool = False,
        num_items_in_batch: Any = None,  # noqa: ARG002 (counted over all processes already)
    ) -> Any:
        """The loss of a batch, pass by pass; all but the last are carried back at once."""
        if return_outputs:
            raise InputError("there are no outputs to return")
        *early, last = self._passes(inputs)
        total = torch.zeros((), device=self.accelerator.device)
        for rows in early:
            with self.accelerator.no_sync(model):
                loss = self._compute_loss(model, cut(inputs, rows, self.pad_to_multiple_of))
                if loss.requires_grad:
                    self.accelerator.backward(loss)
            total += loss.detach()
        return total + self._compute_loss(model, cut(inputs, last, self.pad_to_multiple_of))

    def _passes(self, batch: Tensors) -> tuple[Any, ...]:
        """The rows of a batch, as many as fit in one pass; like lengths together."""
        lengths = batch["prompt_mask"].sum(dim=1) + batch["completion_mask"].sum(dim=1)
        order = lengths.argsort(stable=True)
        if self.is_deepspeed_enabled:  # it counts the passes itself
            return (order,)
        return tuple(order.split(self.args.per_device_train_batch_size))

    def _compute_loss(self, model: Any, inputs: Tensors) -> Any:
        """TRL's loss; a mean over rows is one over the real rows of all processes and passes.

        TRL divides by the rows of the pass and by the number of passes. The sum over passes and the
        mean over processes is then right if each is multiplied by its rows, the passes of an
        iteration and the processes, and divided by the rows that count. What TRL logs of a pass in
        which all rows of all processes are empty is no number of the policy, and is left out.
        """
        metrics = self._metrics["train"]
        learned = inputs["completion_mask"] * inputs.get("tool_mask", 1)
        before = None
        if not self.accelerator.gather(learned.sum()).any():
            before = {name: list(values) for name, values in metrics.items()}
        loss = super()._compute_loss(model, inputs)
        if before is not None:
            metrics.clear()
            metrics.update(before)
        if self.loss_type in BY_ROW:
            parts = self.args.steps_per_generation * self.accelerator.num_processes
            rows = len(inputs["prompt_ids"]) * parts
            loss = loss * rows / inputs["rows_in_batch"].clamp(min=1)
        return loss

    # Logging.

    def _report_episodes(self, iteration: Iteration, counted: int, chosen: int, size: int) -> None:
        """Log the iteration, and write its rollouts if asked to."""
        padded = size * self.accelerator.num_processes - chosen
        rows = {"rows": chosen, "rows_skipped": counted - chosen, "rows_padded": padded}
        self._note(iteration_metrics(iteration) | trl_metrics(iteration.counted))
        self._note({f"ascribe/{name}": number for name, number in rows.items()})
        self.state.num_input_tokens_seen += iteration.rollout.clock.tokens
        self._metrics["train"]["num_tokens"] = [self.state.num_input_tokens_seen]
        if self.dump_dir is not None and self.accelerator.is_main_process:
            number = self._step // self._steps_of_iteration
            write_rollouts(iteration, self.dump_dir, number, self.states)

    def _log_completions(self, local: Rollout, advantage: Floats) -> None:
        """Show the samples in TRL's table of completions, in place of the rows that TRL scored."""
        for table in self._logs.values():
            table.clear()
        if not self.log_completions:
            return
        samples = [
            (step.messages, step.sample.text, step.reward, float(value))
            for step, value in zip(local.steps, advantage, strict=True)
        ]
        for messages, text, reward, value in gather_object(samples):
            self._logs["prompt"].append(list(messages))
            self._logs["completion"].append([{"role": "assistant", "content": text}])
            self._logs["rewards"]["environment"].append(reward)
            self._logs["advantages"].append(value)


def cut(batch: Tensors, rows: Any, multiple: int | None = None) -> Tensors:
    """These rows of a batch, without the columns that are padding in all of them.

    Args:
        batch: tensors with one row each, and numbers about the whole.
        rows: by number.
        multiple: widths stay a multiple of this.
    """
    part = {name: value[rows] if value.ndim else value for name, value in batch.items()}
    width = part["prompt_ids"].shape[1]
    shown = width - int(part["prompt_mask"].any(dim=0).int().argmax())
    length = max(1, int(part["completion_mask"].sum(dim=1).max()))
    if multiple is not None:
        shown, length = (-(-size // multiple) * multiple for size in (shown, length))
    for name, value in part.items():
        if name.startswith("prompt"):
            part[name] = value[:, width - shown :]
        elif value.ndim == 2:
            part[name] = value[:, :length]
    return part


def _sync_on_cpu(generation: Any) -> None:
    """Give vLLM the model's weights, in place of TRL's copy, which works on GPUs alone."""
    runner = generation.llm.llm_engine.model_executor.driver_worker.model_runner
    reload_on_cpu(runner, generation._iter_named_params())
    generation.llm.reset_prefix_cache()


def environment_reward(*_: Any, **__: Any) -> list[float]:
    """The reward function that GRPOTrainer requires; it is never called."""
    raise RuntimeError("rewards come from the environment")
