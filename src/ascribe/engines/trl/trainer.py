"""``AscribeTrainer``: TRL's GRPO trainer with episodes in environments and credit for their steps.

::

    trainer = AscribeTrainer(
        model,                                   # as GRPOTrainer: a folder, a model, or a PeftModel
        GRPOConfig(output_dir=..., max_steps=100, num_generations=8, ...),
        setup=Setup("textcraft", pool="processes", workers=2),
        recipe="gigpo",                          # a name, or recipe("bipace_q", radius=0.05)
        max_turns=12,
    )
    trainer.train()                              # or train(resume_from_checkpoint=True)

What TRL calls a prompt is here a group: a task with a seed, played ``num_generations`` times. An
iteration is one round of episodes and the updates on them; it plays ``generation_batch_size``
episodes. ``per_device_train_batch_size`` is the number of rows in one pass over the model.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from accelerate.utils import gather_object
from datasets import Dataset
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer
from trl.models import unwrap_model_for_generation
from trl.models.utils import disable_gradient_checkpointing
from trl.trainer.utils import use_adapter

from ascribe.agents import Agent
from ascribe.engines.config import Layout
from ascribe.engines.corrections import (
    Corrections,
    correction_problem,
    judged_responses,
    with_corrections,
)
from ascribe.engines.crediting import (
    History,
    Iteration,
    LocalRollout,
    credit_iteration,
    fingerprint_layer,
    has_history,
    load_history,
    save_history,
    without_texts,
    write_rollouts,
)
from ascribe.engines.episodes import Player, episode_specs, join_rollouts, task_rows
from ascribe.engines.metrics import Stopwatch, episode_metrics, iteration_metrics, trl_metrics
from ascribe.engines.trl import PREFIX, last_checkpoint
from ascribe.engines.trl import batch as batches
from ascribe.engines.trl.arguments import refuse_unsupported
from ascribe.engines.trl.batch import Row, Tensor, Tensors, rows_of
from ascribe.engines.trl.policies import (
    ChatPolicy,
    SamplingCopy,
    TeamAdapters,
    TeamPolicy,
    whole_chat,
)
from ascribe.estimators import Recipe
from ascribe.estimators import recipe as make_recipe
from ascribe.fingerprints import FloatMatrix
from ascribe.fingerprints.capture import capture
from ascribe.models import ModelPolicy, TransformersPolicy
from ascribe.rollout import FailurePolicy, Rollout, Sampling, SamplingPolicy, Setup
from ascribe.rollout.record import States
from ascribe.steps.arrays import Bools
from ascribe.steps.select import OnProblem

PolicyMaker = Callable[[Any, Any], SamplingPolicy]
"""From the model and its tokenizer to the policy of the episodes."""

BY_ROW = ("grpo", "sapo", "luspo", "dr_grpo")
"""Losses that TRL averages over the rows of a pass; it divides the others by a count of tokens."""


class AscribeTrainer(GRPOTrainer):  # type: ignore[misc]
    """GRPOTrainer that plays episodes and learns from a credit for each of their steps.

    There is no ``train_dataset`` and no reward function: tasks and rewards come from the
    environment. What is not listed is GRPOTrainer's (``processing_class``, ``callbacks``,
    ``optimizers``, ``peft_config``, ``quantization_config``).

    Args:
        model: as GRPOTrainer.
        args: as GRPOTrainer; ``max_steps`` must be given.
        setup: the environment, its options, the style of prompts, and the pool.
        recipe: how credit is computed: a recipe, or the name of one.
        max_turns: decisions after which an episode is cut; None: the environment's own limit.
        layout: ``step``: a row for each decision. ``trajectory``: a row for each trajectory; the
            agent must show the whole chat.
        agent: in place of the setup's.
        tasks: numbers of the tasks to play; None: each group's seed draws its own.
        eval_tasks: numbers of the tasks to evaluate on, each played ``num_generations_eval`` times.
        failures: what to do about episodes that fail.
        check: what to do about steps that cannot be credited: ``raise``, ``drop`` or ``keep``.
        states: what the state of a step is: the ``environment``'s key, or the ``observation``.
        layer: decoder block whose hidden state is a state's fingerprint, for recipes that take
            fingerprints; an index as in Python.
        stop: a response ends after any of these texts.
        context: tokens that prompt and response may have together; None: what the model can.
        policy: makes the policy of the episodes; None: the model itself samples.
        sampling_dtype: type of a copy of the model that samples in its place, ``bfloat16`` or
            ``float16``; None: no copy.
        dump_dir: where each iteration's rollouts are written, with the advantages used.
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
        recipe: Recipe | str = "gigpo",
        max_turns: int | None = None,
        layout: Layout = "step",
        agent: Agent | None = None,
        tasks: Sequence[int] | None = None,
        eval_tasks: Sequence[int] | None = None,
        failures: FailurePolicy = FailurePolicy(),  # noqa: B008 (frozen)
        check: OnProblem = "drop",
        states: States = "environment",
        layer: int | None = None,
        stop: Sequence[str] = (),
        context: int | None = None,
        policy: PolicyMaker | None = None,
        sampling_dtype: str | None = None,
        dump_dir: str | Path | None = None,
        corrections: Corrections | None = None,
        agents: Sequence[str] = (),
        **others: Any,
    ) -> None:
        refuse_unsupported(args)
        if agents and hasattr(model, "peft_config"):
            raise ValueError("agents need a model without adapters, since each gets a fresh one")
        if layout not in get_args(Layout):
            raise ValueError(f"layout must be one of {', '.join(get_args(Layout))}, not {layout!r}")
        self.recipe = make_recipe(recipe) if isinstance(recipe, str) else recipe
        self.layer = fingerprint_layer(self.recipe, layer)
        self.layout, self.check, self.states, self.dump_dir = layout, check, states, dump_dir
        self.context, self._make_policy = context, policy
        self._steps_of_iteration = args.steps_per_generation * args.num_iterations
        steps = args.max_steps * args.gradient_accumulation_steps
        iterations = -(-steps // self._steps_of_iteration)
        groups = iterations * args.generation_batch_size // args.num_generations
        held_out = task_rows(len(eval_tasks or ()), args.seed, "eval", eval_tasks)
        super().__init__(
            model=model,
            reward_funcs=environment_reward,
            args=args,
            train_dataset=Dataset.from_list(task_rows(groups, args.seed, "train", tasks)),
            eval_dataset=Dataset.from_list(held_out) if held_out else None,
            **others,
        )
        if self.aux_loss_enabled:
            raise ValueError("no load-balancing loss here: set router_aux_loss_coef=0.0")
        # The rows are drawn already, in an order that a resumed run must find again.
        self.shuffle_dataset = False
        turns = setup.turns(max_turns)
        self.corrections = corrections
        count = corrections.count if corrections else 0
        if problem := correction_problem(self.recipe, count, turns):
            raise ValueError(f"corrections: {problem}")
        chosen = agent or (setup.agent if layout == "step" else whole_chat(setup.agent))
        self.player = Player(
            setup,
            corrections.agent(chosen) if corrections else chosen,
            Sampling(args.temperature, args.top_p, args.max_completion_length, tuple(stop)),
            turns,
            failures,
            slots=max(
                args.per_device_train_batch_size * args.steps_per_generation,
                args.per_device_eval_batch_size if held_out else 0,
            ),
        )
        self._history: History = None
        """State carried over from the last iteration, and from the one before it."""
        self._history_before: History = None
        self._adapters = self._team(agents, policy) if agents else None
        self._policy: SamplingPolicy | None = None
        self._copy = None if sampling_dtype is None else SamplingCopy(sampling_dtype)
        self._clock = Stopwatch()
        self._held_out: list[LocalRollout] = []
        """Of all processes, in the batches of an evaluation so far."""
        self.add_callback(_RestoreStep(self))

    def _team(self, agents: Sequence[str], policy: PolicyMaker | None) -> TeamAdapters:
        missing = {
            "peft_config, for there to be adapters": not hasattr(self.model, "peft_config"),
            "layout='step', since a row has one agent": self.layout != "step",
            "a recipe without fingerprints, which differ by agent": self.layer is not None,
            "one process": self.accelerator.num_processes > 1,
            "policy=None, since the model's adapters sample": policy is not None,
        }
        for requirement, is_missing in missing.items():
            if is_missing:
                raise ValueError(f"agents need {requirement}")
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
        """As GRPOTrainer's; ``True`` resumes from the last complete checkpoint.

        Raises:
            ValueError: if there is none.
        """
        if resume_from_checkpoint is True:
            checkpoint = last_checkpoint(self.args.output_dir)
            if checkpoint is None:
                raise ValueError(f"{self.args.output_dir} holds no complete checkpoint")
            resume_from_checkpoint = str(checkpoint)
        self._history = None
        # What is left of a run that was interrupted must not get into this one.
        self._buffered_inputs = None
        self._metrics["train"].clear()
        self._clock = Stopwatch()
        if resume_from_checkpoint:
            self._history = load_history(self.recipe, resume_from_checkpoint)
        try:
            return super().train(resume_from_checkpoint, **options)
        finally:
            self._close()

    def _save_checkpoint(self, *given: Any, **options: Any) -> None:
        # First this, since GRPOTrainer writes last the file that completes the checkpoint.
        if has_history(self.recipe) and self.accelerator.is_main_process:
            folder = Path(self._get_output_dir(trial=None))
            # Inside an iteration: a resumed run plays it again.
            finished = self._step % self._steps_of_iteration == 0
            history = self._history if finished else self._history_before
            save_history(history, folder / f"{PREFIX}{self.state.global_step}")
        super()._save_checkpoint(*given, **options)

    def evaluate(self, *given: Any, **options: Any) -> dict[str, float]:
        """As GRPOTrainer's: plays ``eval_tasks`` and logs how the episodes went."""
        self._held_out = []
        self._metrics["eval"].clear()
        try:
            metrics: dict[str, float] = super().evaluate(*given, **options)
            return metrics
        finally:
            if not self.is_in_train:
                self._close()

    def _close(self) -> None:
        """Close environments and policy; the next episodes open them again."""
        self.player.close()
        if self._policy is not None:
            self._policy.close()
            self._policy = None

    # An iteration: play, credit, lay out.

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> Tensors:
        training = self._training
        with self._clock("rollout") if training else nullcontext():
            groups, local = self._play(inputs, training=training)
        self.model.train(training)  # a policy of one's own may have left it otherwise
        if not training:
            return self._evaluated(groups, local)
        rows = rows_of(local.trajectories, self.layout)
        logprobs, vectors = None, None
        if self.layer is not None:
            with self._clock("logprobs"):
                logprobs, vectors = self._read(rows, self.layer)
        with self._clock("credit"):
            iteration, mine = self._credited(groups, local, vectors)
        counts, signal = iteration.counts[mine], iteration.signal[mine]
        learning = counts & self._learns(local)
        counted = [n for n, row in enumerate(rows) if learning[row.steps[0]]]
        # Under a KL penalty rows without advantage move the model too.
        chosen = [n for n in counted if self.beta != 0.0 or signal[rows[n].steps].any()]
        taken = [rows[number] for number in chosen]
        tokens = sum(rows[n].tokens for n in counted)
        sums = gather_object([(len(counted), tokens, int(learning.sum()), len(chosen))])
        row_counts, token_counts, step_counts, chosen_counts = zip(*sums, strict=True)
        batch = self._tensors(taken, self._full(max(chosen_counts)))
        with self._clock("logprobs"):
            if logprobs is not None:
                logprobs = _like(batch["completion_ids"], logprobs[chosen])
            batch |= self._logprobs(batch, logprobs)
        batch["advantages"] = self._advantages(taken, iteration.advantage[mine], batch)
        batch["num_items_in_batch"] = torch.tensor(sum(token_counts))
        batch["rows_in_batch"] = torch.tensor(sum(row_counts))
        self._report(iteration, sum(row_counts), sum(chosen_counts), len(batch["prompt_ids"]))
        mean = sum(token_counts) / max(1, sum(step_counts))
        self._log("train", {"completions/mean_length": mean})
        self._log_completions(local, iteration.advantage[mine])
        return self._on_device(batch)

    def _learns(self, local: Rollout) -> Bools:
        """For each step whether its agent learns in this iteration; activates its adapter."""
        steps = [step for trajectory in local.trajectories for step in trajectory.steps]
        if self._adapters is None:
            return np.ones(len(steps), dtype=np.bool_)
        agent = self._adapters.learner(self._step // self._steps_of_iteration)
        self._adapters.choose(agent)
        return np.array([step.agent == agent for step in steps], dtype=np.bool_)

    def _evaluated(self, groups: tuple[str, ...], local: Rollout) -> Tensors:
        """Log how the episodes went; there is nothing to learn, so the loss is 0."""
        self._held_out += gather_object([self._played(groups, local, None)])
        episodes = join_rollouts([part.rollout for part in self._held_out])
        # TRL takes the mean over batches, which may differ in size: so there is one value.
        self._metrics["eval"].clear()
        self._log("eval", episode_metrics(episodes) | trl_metrics(episodes))
        batch = self._tensors([], 1)
        nothing = {"advantages": torch.zeros(1), "num_items_in_batch": torch.tensor(0)}
        nothing["rows_in_batch"] = torch.tensor(0)
        if self.beta != 0.0:
            nothing["ref_per_token_logps"] = torch.zeros(batch["completion_ids"].shape)
        return self._on_device(batch | nothing)

    @property
    def _training(self) -> bool:
        return bool(self.model.training)

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
        with self._sampling_policy() as policy:
            played = self.player.play(mine, size, policy) if mine else join_rollouts([])
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
        """The policy of the episodes, with the model's weights gathered."""
        if self._make_policy is not None:
            if self._policy is None:
                model = self.accelerator.unwrap_model(self.model)
                policy = self._make_policy(model, self._tokenizer)
                self._policy = self._keeping_tokens(policy)
            yield self._policy
            return
        with (
            unwrap_model_for_generation(
                self.model_wrapped,
                self.accelerator,
                gather_deepspeed3_params=self.args.ds3_gather_for_generation,
                gradient_checkpointing_kwargs=self.args.gradient_checkpointing_kwargs,
            ) as model,
            self._dist.summon_full_params(self.model_wrapped, recurse=False),
        ):
            own = TransformersPolicy(
                model if self._copy is None else self._copy.of(model),
                self._tokenizer,
                context=self.context,
                template_options=self.chat_template_kwargs,
            )
            if self._adapters is not None:
                with self._adapters.restored():
                    yield TeamPolicy(own, self._adapters)
            else:
                yield self._keeping_tokens(own)

    def _keeping_tokens(self, policy: SamplingPolicy) -> SamplingPolicy:
        """The policy, which keeps the tokens of a chat if a trajectory is to be one row."""
        if self.layout == "trajectory" and isinstance(policy, ModelPolicy):
            return ChatPolicy(policy)
        return policy

    def _played(
        self, groups: tuple[str, ...], local: Rollout, vectors: FloatMatrix | None
    ) -> LocalRollout:
        """What this process sends to the others."""
        whole = self.dump_dir is not None and self._training
        if not whole:
            local = replace(local, trajectories=tuple(map(without_texts, local.trajectories)))
        return LocalRollout(groups, local, vectors)

    def _credited(
        self, groups: tuple[str, ...], local: Rollout, vectors: FloatMatrix | None
    ) -> tuple[Iteration, slice]:
        """The credit of all processes' steps, and which of them are of this process."""
        mine = self._played(groups, local, vectors)
        played = gather_object([mine])
        iteration = credit_iteration(
            played,
            self.recipe,
            size=self.num_generations,
            failures=self.player.failures,
            on_problem=self.check,
            states=self.states,
            history=self._history,
        )
        self._history_before = self._history
        self._history = iteration.next_history(self._history)
        first = sum(part.steps for part in played[: self.accelerator.process_index])
        return iteration, slice(first, first + mine.steps)

    # Tensors and passes over the model.

    def _tensors(self, rows: Sequence[Row], size: int) -> Tensors:
        blank = self._tokenizer.pad_token_id
        return batches.tensors(rows, blank, size, self.pad_to_multiple_of)

    def _full(self, most: int) -> int:
        """Rows of the batch, for at most so many on any process: TRL splits it into equal parts."""
        parts = int(self.args.steps_per_generation)
        return max(1, -(-most // parts)) * parts

    def _on_device(self, batch: Tensors) -> Tensors:
        return {name: value.to(self.accelerator.device) for name, value in batch.items()}

    def _advantages(self, rows: Sequence[Row], advantage: Any, batch: Tensors) -> Tensor:
        size, length = batch["completion_ids"].shape
        if self.layout == "step":
            return batches.per_row(rows, advantage, size)
        return batches.per_token(rows, advantage, size, length)

    def _read(self, rows: Sequence[Row], layer: int) -> tuple[Tensor, FloatMatrix]:
        """Log-probabilities of the rows' tokens and fingerprints of their steps, in one pass."""
        batch = self._tensors(rows, max(1, *gather_object([len(rows)])))
        model = self.accelerator.unwrap_model(self.model)
        seen: list[int] = []
        with capture(model, layer, dtype=torch.float16, device="cpu") as hidden:

            def expect(part: Tensor, piece: Tensors) -> None:
                shown = {place: rows[n] for place, n in enumerate(part.tolist()) if n < len(rows)}
                seen.extend(step for row in shown.values() for step in row.steps)
                hidden.expect(batches.decision_places(shown, piece))

            logprobs = self._pass(self.model, batch, expect)
        found = hidden.fingerprints().numpy()
        vectors = np.empty_like(found)
        vectors[seen] = found
        return logprobs, vectors

    def _logprobs(self, batch: Tensors, known: Tensor | None) -> Tensors:
        """What the loss compares with: the policy as it sampled, and the reference."""
        found = {}
        # With one update for each iteration the policy that sampled is the policy that learns.
        if self.args.gradient_accumulation_steps % self._steps_of_iteration != 0:
            old = self._pass(self.model, batch) if known is None else known
            found["old_per_token_logps"] = old
        if self.beta != 0.0 and self.ref_model is not None:
            found["ref_per_token_logps"] = self._pass(self.ref_model, batch)
        elif self.beta != 0.0:
            model = self.accelerator.unwrap_model(self.model)
            with use_adapter(model, "ref" if "ref" in model.peft_config else None):
                found["ref_per_token_logps"] = self._pass(self.model, batch)
        return found

    def _pass(
        self,
        model: Any,
        batch: Tensors,
        before: Callable[[Tensor, Tensors], None] = lambda _part, _piece: None,
    ) -> Tensor:
        """Log-probabilities of completions: (rows, length). ``before`` is called for each pass."""
        found = torch.zeros(batch["completion_ids"].shape)
        with (
            torch.no_grad(),
            disable_gradient_checkpointing(self.model, self.args.gradient_checkpointing_kwargs),
        ):
            for part in self._parts(batch):
                piece = batches.cut(batch, part, self.pad_to_multiple_of)
                before(part, piece)
                ids = torch.cat([piece["prompt_ids"], piece["completion_ids"]], dim=1)
                mask = torch.cat([piece["prompt_mask"], piece["completion_mask"]], dim=1)
                length = piece["completion_ids"].shape[1]
                device = self.accelerator.device
                logprobs, _, _ = self._get_per_token_logps_and_entropies(
                    model, ids.to(device), mask.to(device), length
                )
                found[part, :length] = logprobs.float().cpu()
        return found

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: Tensor,
        attention_mask: Tensor,
        logits_to_keep: int,
        **options: Any,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """As TRL's; on a CPU the logits of responses alone."""
        can_keep = batches.can_keep_logits(self.accelerator.unwrap_model(model))
        if input_ids.device.type != "cpu" or options.get("compute_aux_loss") or not can_keep:
            scores: tuple[Tensor, Tensor | None, Tensor | None]
            scores = super()._get_per_token_logps_and_entropies(
                model, input_ids, attention_mask, logits_to_keep, **options
            )
            return scores
        size = options.get("batch_size") or len(input_ids)
        with self.accelerator.autocast():
            parts = [
                batches.score_completions(model, ids, mask, logits_to_keep, self.temperature)
                for ids, mask in zip(input_ids.split(size), attention_mask.split(size), strict=True)
            ]
        logprobs, entropies = (torch.cat(one) for one in zip(*parts, strict=True))
        return logprobs, entropies if options.get("compute_entropy") else None, None

    def _parts(self, batch: Tensors) -> tuple[Tensor, ...]:
        """The rows of a batch, as many as fit in one pass; like lengths together."""
        order = batches.lengths(batch).argsort(stable=True)
        if self.is_deepspeed_enabled:  # it counts the passes itself
            return (order,)
        size = self.args.per_device_train_batch_size
        return tuple(order.split(size if self._training else self.args.per_device_eval_batch_size))

    # The update.

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Tensor:
        """As GRPOTrainer's, with its time taken."""
        with self._clock("update"):
            loss = super().training_step(model, inputs, num_items_in_batch)
        if self._step % self._steps_of_iteration == 0:
            spent = self._clock.lap()
            self._log("train", {f"ascribe/seconds/{phase}": spent[phase] for phase in spent})
        return loss

    def compute_loss(
        self,
        model: Any,
        inputs: Tensors,
        return_outputs: bool = False,
        num_items_in_batch: Any = None,  # noqa: ARG002 (counted over all processes already)
    ) -> Tensor:
        """The loss of a batch, pass by pass; all but the last are carried back at once."""
        if return_outputs:
            raise ValueError("there are no outputs to return")
        *early, last = self._parts(inputs)
        total = torch.zeros((), device=self.accelerator.device)
        for part in early:
            with self.accelerator.no_sync(model):
                loss = self._compute_loss(model, batches.cut(inputs, part, self.pad_to_multiple_of))
                if loss.requires_grad:
                    self.accelerator.backward(loss)
            total += loss.detach()
        return total + self._compute_loss(model, batches.cut(inputs, last, self.pad_to_multiple_of))

    def _compute_loss(self, model: Any, inputs: Tensors) -> Tensor:
        """TRL's loss; a mean over rows is one over the real rows of all processes and passes.

        TRL divides by the rows of the pass and by the number of passes. The sum over passes and the
        mean over processes is then right if each is multiplied by its rows, the passes of an
        iteration and the processes, and divided by the rows that count. What TRL logs of a pass in
        which all rows of all processes are empty is no number of the policy, and is left out.
        """
        metrics = self._metrics["train" if self._training else "eval"]
        before = None
        if not self.accelerator.gather(inputs["completion_mask"].sum()).any():
            before = {name: list(values) for name, values in metrics.items()}
        loss = super()._compute_loss(model, inputs)
        if before is not None:
            metrics.clear()
            metrics.update(before)
        if self.loss_type in BY_ROW:
            parts = self.args.steps_per_generation if self._training else 1
            rows = len(inputs["prompt_ids"]) * parts * self.accelerator.num_processes
            loss = loss * rows / inputs["rows_in_batch"].clamp(min=1)
        return loss

    # Logging.

    def _report(self, iteration: Iteration, counted: int, chosen: int, size: int) -> None:
        """Log the iteration, and write its rollouts if asked to."""
        padded = size * self.accelerator.num_processes - chosen
        rows = {"rows": chosen, "rows_skipped": counted - chosen, "rows_padded": padded}
        self._log("train", iteration_metrics(iteration) | trl_metrics(iteration.counted))
        self._log("train", {f"ascribe/{name}": number for name, number in rows.items()})
        self.state.num_input_tokens_seen += iteration.rollout.clock.tokens
        self._metrics["train"]["num_tokens"] = [self.state.num_input_tokens_seen]
        if self.dump_dir is not None and self.accelerator.is_main_process:
            number = self._step // self._steps_of_iteration
            write_rollouts(iteration, self.dump_dir, number, self.states)

    def _log_completions(self, local: Rollout, advantage: Any) -> None:
        """Add the samples to TRL's table of completions, if ``log_completions`` is set."""
        if not self.log_completions:
            return
        steps = [step for trajectory in local.trajectories for step in trajectory.steps]
        samples = [
            (step.messages, step.sample.text, step.reward, float(value))
            for step, value in zip(steps, advantage, strict=True)
        ]
        for messages, text, reward, value in gather_object(samples):
            self._logs["prompt"].append(list(messages))
            self._logs["completion"].append([{"role": "assistant", "content": text}])
            self._logs["rewards"]["environment"].append(reward)
            self._logs["advantages"].append(value)

    def _log(self, mode: str, found: Mapping[str, float]) -> None:
        for name, value in found.items():
            self._metrics[mode][name].append(value)


class _RestoreStep(TrainerCallback):  # type: ignore[misc]
    """Restores the batch counter of a resumed run, so that iterations begin where they did."""

    def __init__(self, trainer: AscribeTrainer) -> None:
        self.trainer = trainer

    def on_train_begin(self, args: Any, state: Any, *_: Any, **__: Any) -> None:
        """Set the number of batches seen so far."""
        self.trainer._step = state.global_step * args.gradient_accumulation_steps


def environment_reward(*_: Any, **__: Any) -> list[float]:
    """The reward function that GRPOTrainer requires; it is never called."""
    raise RuntimeError("rewards come from the environment")


def _like(shape: Tensor, values: Tensor) -> Tensor:
    """The values in a tensor of this shape, cut or filled up with zeros."""
    found = torch.zeros(shape.shape)
    length = min(found.shape[1], values.shape[1])
    found[: len(values), :length] = values[:, :length]
    return found
