"""``AscribeTrainer``: TRL's GRPO trainer, with an advantage for each turn.

::

    trainer = AscribeTrainer(            # in place of GRPOTrainer, with the same arguments
        model, reward_funcs, args, train_dataset, environment_factory=Game,
        recipe="sbc",                    # a name, or recipe("bipace_q", radius=0.05)
    )

TRL generates, runs tools and environments, computes rewards, and updates the model. A turn is a run
of tokens that the model wrote between observations (``tool_mask``). What it was shown and did is
read from TRL's messages; from tokens where there are no others, as with a rollout function. The
recipe credits the turns of a whole group, also where its members are spread over processes, and
each turn's advantage replaces TRL's own on the turn's tokens.

Page: docs/engines/trl.md. Private names of TRL: ``HOOKS``.
"""

import inspect
import logging
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, SupportsFloat, get_args

import numpy as np
import torch
import trl
from packaging.version import Version
from transformers import TrainerState
from trl import GRPOTrainer

from ascribe.engines import training_recipe
from ascribe.engines.capture import Places, capture, decoder_blocks
from ascribe.engines.crediting import (
    CreditedSteps,
    History,
    fingerprint_layer,
    no_history,
    say_once,
    with_first_tokens,
    write_steps,
)
from ascribe.engines.inputs import (
    as_text,
    finite,
    missing_columns,
    of_steps,
    refuse_unknown,
    task_name,
    turn_lists,
    uncompared,
    with_columns,
    with_tasks,
)
from ascribe.engines.metrics import Stopwatch, credit_metrics
from ascribe.engines.options import refuse
from ascribe.engines.trl import last_checkpoint
from ascribe.engines.trl.options import GRPO
from ascribe.engines.trl.turns import conversation, credit_gathered, from_chats
from ascribe.estimators import DEFAULT, Recipe
from ascribe.groups.fingerprints import FloatMatrix
from ascribe.sessions import Spans, State, from_sequences, spread
from ascribe.sessions.decoding import decoder
from ascribe.sessions.endings import end_tokens, is_truncated
from ascribe.sessions.sequences import ID
from ascribe.sessions.spans import turn_starts
from ascribe.steps.arrays import Floats, Ints
from ascribe.steps.errors import InputError, MissingPackageError
from ascribe.steps.hints import page, unknown
from ascribe.steps.select import OnProblem
from ascribe.steps.table import INPUT_COLUMNS, Coded, StepTable

RELEASES = ("1.14", "1.16")
"""The first and the last release of TRL that is tested."""

HOOKS: dict[str, tuple[str, ...]] = {
    "_generate": ("prompts",),
    "_generate_single_turn": ("prompt_ids", "images", "multimodal_fields"),
    "_generate_and_score_completions": ("inputs",),
    "_calculate_rewards": ("inputs", "prompts", "completions", "completion_ids_list"),
    "_prepare_inputs": ("generation_batch",),
    "_get_per_token_logps_and_entropies": (
        *("model", "input_ids", "attention_mask", "logits_to_keep", "batch_size"),
        "compute_entropy",
    ),
    "_step": (),
    "_logs": (),
    "_metrics": (),
}
"""Private names of ``GRPOTrainer``: methods with arguments they must take, and attributes."""

SO_FAR, KEY = "reward_so_far", "state_key"
"""Attributes of environments that are read before each turn."""

CARRIED = "ascribe_history"
"""Key of the state that a recipe carries on, among those of callbacks in ``trainer_state.json``."""

Tensors = dict[str, Any]


def check_trl(
    owner: Any, names: Mapping[str, tuple[str, ...]] = HOOKS, kind: type = GRPOTrainer
) -> None:
    """Raise ImportError if an object lacks one of these attributes, or its class a method.

    A release that lacks nothing, but is not among those that are tested, is logged once.
    """
    missing = [name for name, taken in names.items() if not taken and not hasattr(owner, name)]
    for name, taken in names.items():
        method = getattr(kind, name, None)
        parameters = inspect.signature(method).parameters if taken and method else {}
        if any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
            continue  # it passes arguments on
        missing += [f"{name}({each})" for each in taken if each not in parameters]
    if missing:
        raise MissingPackageError(
            f"TRL {trl.__version__} lacks {', '.join(missing)}, on which AscribeTrainer depends",
            hint=f"install a release that {page('engines/trl')} names",
        )
    first, last = (Version(release).release for release in RELEASES)
    if not first <= Version(trl.__version__).release[:2] <= last:
        say_once(
            f"TRL {trl.__version__} is not tested, but has all that AscribeTrainer needs; tested "
            f"are the releases {' to '.join(RELEASES)}"
        )


def refuse_state(state: Any) -> None:
    """Raise ValueError for a state that is not among those of ``State``."""
    if not isinstance(state, str) or state not in get_args(State):
        own = f"for states of your own take key, and give environments a property {KEY}, or return "
        own += "turn_states from a rollout_func"
        raise unknown("choice", state, get_args(State), own).within("state")


@dataclass(frozen=True, eq=False)
class Sequences:
    """What TRL generated in this process, one entry for each row of its batch."""

    prompts: list[list[int]]
    completions: list[list[int]]
    masks: list[Any]
    """1 where the model wrote the token."""

    @cached_property
    def starts(self) -> list[Ints]:
        """The first token of each turn, in each completion."""
        return list(map(turn_starts, self.masks))


class AscribeTrainer(GRPOTrainer):  # type: ignore[misc]
    """GRPOTrainer whose advantages are those of a recipe, one for each turn.

    All arguments of GRPOTrainer are taken, and mean what they mean there.

    Args:
        arguments: of GRPOTrainer.
        recipe: how turns are credited: a recipe, or the name of one.
        state: what the state of a turn is: the last ``observation``, the ``tool`` result, the whole
            ``history``, or a ``key`` (see below).
        fingerprints: decoder block whose hidden state is a state's fingerprint, for recipes that
            take fingerprints; an index as in Python.
        check: what to do about turns that cannot be credited: ``raise``, ``drop`` or ``keep``.
        dump_dir: where the turns of each iteration are written, with their advantages.
        options: of GRPOTrainer.

    The reward of an episode is that of the reward functions, at its last turn. An environment of
    ``environment_factory`` may have the attribute ``reward_so_far``: then each turn has what its
    tool calls added to it, and the last one what is left of the episode's. Its ``state_key`` is the
    key of the turn that follows. A ``rollout_func`` returns lists with an entry for each turn
    instead: ``turn_rewards``, ``turn_states``, and ``turn_COLUMN`` for a column of the recipe. Its
    ``truncated`` says which episodes a limit of its own has cut.

    Raises:
        ValueError: for arguments that would be without effect.
        ImportError: for a release of TRL that lacks a name in ``HOOKS``.
    """

    _of_environment: tuple[str, ...] = ()
    """Columns that environments give."""

    def __init__(
        self,
        *arguments: Any,
        recipe: Recipe | str = DEFAULT,
        state: State = "observation",
        fingerprints: int | None = None,
        check: OnProblem = "drop",
        dump_dir: str | Path | None = None,
        **options: Any,
    ) -> None:
        refuse_state(state)
        refuse_unknown("check", check, OnProblem)
        if fingerprints is not None and type(fingerprints) is not int:
            raise InputError(
                f"fingerprints is {fingerprints!r}, not the number of a decoder block such as -12",
                hint=(
                    'to compare states by their words, give the recipe fingerprint="ngram" instead'
                ),
            )
        self.recipe = training_recipe(recipe)
        self.layer = fingerprint_layer(self.recipe, fingerprints)
        self.state_choice, self.check, self.dump_dir = state, check, dump_dir
        self._captures = self.layer is not None or "entropy" in self.recipe.columns
        """Whether a pass over the model gives more than log-probabilities."""
        super().__init__(*arguments, **options)
        check_trl(self)
        self._refuse_unsupported()
        self._steps_of_iteration = self.args.steps_per_generation * self.num_iterations
        self._history: History = None
        """State carried over from the last iteration, and from the one before it."""
        self._history_before: History = None
        self._amid = 0
        """Steps of an iteration that a resumed run leaves out."""
        given: Any = self.processing_class
        self._texts = getattr(given, "tokenizer", given)
        ends = end_tokens(self._texts, self.model.generation_config)
        self._ends = ends | {self._texts.pad_token_id}
        self._decode = decoder(self._texts)
        self._sequences = Sequences([], [], [])
        self._capturing = False
        """Whether the next pass over the model captures the awaited fingerprints and entropies."""
        self._vectors: FloatMatrix | None = None
        self._entropies: Floats | None = None
        """Of the tokens of completions."""
        self._clock = Stopwatch()
        self._told_totals = False

    @property
    def _rows_are_turns(self) -> bool:
        """Whether a row has one turn."""
        return not self.tools and self.rollout_func is None

    def _refuse_unsupported(self) -> None:
        def read(name: str) -> Any:
            # Where a row has one turn, its ratio is that of the turn.
            mixes = name != "importance_sampling_level" or not self._rows_are_turns
            return getattr(self, name) if mixes else "token"

        refuse((GRPO,), read)
        read_from = (SO_FAR, KEY) if self.state_choice == "key" else (SO_FAR,)
        for tool in self.tools or () if self.environment_factories else ():
            if inspect.ismethod(tool) and tool.__name__ in read_from:
                raise InputError(
                    f"{type(tool.__self__).__name__}.{tool.__name__} is a method, and TRL gives "
                    "the methods of an environment to the model as tools: make it a property"
                )
        if self.layer is not None:
            blocks = len(decoder_blocks(self.model)[1])
            if not -blocks <= self.layer < blocks:
                raise InputError(
                    f"fingerprints is {self.layer}, and the model has {blocks} decoder blocks"
                )
        if self.state_choice == "key" and not (self.rollout_func or self.environment_factories):
            raise InputError(
                "state='key' needs turn_states of a rollout_func, or state_key of an environment"
            )
        given = ("entropy",) if self.rollout_func is None else INPUT_COLUMNS
        if problem := missing_columns(self.recipe, "TRL", (*given, *self._of_environment)):
            raise InputError(problem)
        if problem := uncompared(self.recipe, self.num_generations):
            raise InputError(f"num_generations: {problem}")

    # Runs and checkpoints. The state that a recipe carries on is part of a checkpoint.

    def train(self, resume_from_checkpoint: str | bool | None = None, **options: Any) -> Any:
        """As GRPOTrainer's; ``True`` resumes from the last complete checkpoint.

        Raises:
            ValueError: if there is none.
        """
        if resume_from_checkpoint is True:
            checkpoint = last_checkpoint(self.args.output_dir)
            if checkpoint is None:
                raise InputError(f"{self.args.output_dir} holds no complete checkpoint")
            resume_from_checkpoint = str(checkpoint)
        self._history, self._step, self._amid = None, 0, 0
        # What is left of a run that was interrupted must not get into this one.
        self._metrics["train"].clear()
        self._clock = Stopwatch()
        if resume_from_checkpoint:
            file = Path(resume_from_checkpoint) / "trainer_state.json"
            state = TrainerState.load_from_json(str(file))
            if self.recipe.has_history and CARRIED not in state.stateful_callbacks:
                raise InputError(no_history(self.recipe, resume_from_checkpoint, CARRIED))
            self._history = state.stateful_callbacks.get(CARRIED)
            self._step = state.global_step * self.args.gradient_accumulation_steps
            # TRL generates at the start of an iteration; its first steps are then left out.
            self._amid = self._step % self._steps_of_iteration
            self._step -= self._amid
        return super().train(resume_from_checkpoint, **options)

    # From TRL's batch to turns, and from their credit to the batch.

    def _generate(self, prompts: list[Any]) -> Any:
        for each in self.environments or () if self.state_choice == "key" else ():
            _state(each)
        self._readings: list[Any] = []  # before each turn, of each environment
        generated = self._generated_by_trl(prompts)
        prompt_ids, completion_ids, masks, completions, _, self._given = generated[:6]
        if masks is None:
            masks = [np.ones(len(ids)) for ids in completion_ids]
        masks = [np.asarray(mask) != 0 for mask in masks]
        self._sequences = Sequences(prompt_ids, completion_ids, masks)
        # Now, for reward functions get these messages too, and may change them.
        self._texts_of_turns = self._read_messages(prompts, completions)
        cut = self._given.get("truncated") or [
            bool(self.tools and (each[-1].get("tool_calls") or each[-1]["role"] == "tool"))
            for each in completions
        ]
        self._truncated = [
            is_truncated(ids, mask, self._ends, unanswered=each)
            for ids, mask, each in zip(completion_ids, masks, cut, strict=True)
        ]
        if self._captures and self.model.training:
            self._await_fingerprints()
        return generated

    def _generated_by_trl(self, prompts: list[Any]) -> Any:
        return super()._generate(prompts)

    def _generate_single_turn(self, *given: Any, **options: Any) -> Any:
        # TRL's loop comes here once for each turn, after all tool calls of the turn before it.
        if self.environments and self.rollout_func is None:
            keyed = self.state_choice == "key"
            self._readings.append([_reading(each, keyed=keyed) for each in self.environments])
        return super()._generate_single_turn(*given, **options)

    def _calculate_rewards(self, *given: Any, **options: Any) -> Any:
        self._rewarded = super()._calculate_rewards(*given, **options)  # of all processes
        return self._rewarded

    def _read_messages(
        self, prompts: list[Any], completions: list[Any]
    ) -> tuple[list[list[Any]], list[Any]] | None:
        """The states of the turns of each row, and the actions of all, if TRL has their messages.

        A rollout function gives tokens, of which TRL makes one message.
        """
        plain = not completions or isinstance(completions[0], str)
        if plain or self.rollout_func is not None or not self.model.training:
            return None
        counts = [each.size for each in self._sequences.starts]
        pairs = enumerate(zip(prompts, completions, strict=True))
        chats = [conversation(*pair, trajectory=str(number)) for number, pair in pairs]
        state: State = "observation" if self.state_choice == "key" else self.state_choice
        table = from_chats(chats, counts, state)
        self._note({"ascribe/from_tokens_share": float(table is None and any(counts))})
        if table is None:
            return None
        bounds = pairwise(accumulate((len(chat.steps) for chat in chats), initial=0))
        own = [slice(i, j if count else i) for (i, j), count in zip(bounds, counts, strict=True)]
        states, actions = table.state.texts(), table.action.texts()
        return [states[i] for i in own], [action for i in own for action in actions[i]]

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> Tensors:
        if not self.model.training:
            batch: Tensors = super()._generate_and_score_completions(inputs)
            return batch
        # Before TRL adds to the rows what a rollout function returns.
        remembers = getattr(self.recipe, "memory", 0)
        tasks = [task_name(row) for row in inputs] if remembers else None
        with self._clock("rollout"):
            batch = self._scored_by_trl(inputs)
        with self._clock("credit"):
            table, spans = self._turns(inputs)
            table = with_tasks(with_columns(table, self._columns(spans)), tasks, spans)
            credited, advantage = self._credited(table)
            batch["advantages"] = self._on_tokens(advantage, spans, batch)
        self._note(credit_metrics(credited))
        # TRL's table of completions has room for one iteration, so these replace TRL's own.
        wrote = batch["completion_mask"] * batch.get("tool_mask", 1)
        mean = (batch["advantages"] * wrote).sum(dim=1) / wrote.sum(dim=1).clamp(min=1)
        self._logs["advantages"].extend(self.accelerator.gather(mean).tolist())
        if self.dump_dir is not None and self.accelerator.is_main_process:
            write_steps(credited, self.dump_dir, self._step // self._steps_of_iteration)
        return batch

    def _turns(self, inputs: Sequence[Mapping[str, Any]]) -> tuple[StepTable, Spans]:
        """The turns of this process, and their tokens, counted from the start of the prompt."""
        sequences = self._sequences
        first = self.accelerator.process_index * len(inputs)
        numbers = range(first, first + len(inputs))
        iteration = self._step // self._steps_of_iteration
        rewarded = self._rewarded.cpu()[first : first + len(inputs)]
        rewards = (rewarded * self.reward_weights.to(rewarded)).nansum(dim=1)
        rewards[rewarded.isnan().all(dim=1)] = torch.nan
        finals = rewards.tolist()
        groups = [f"{iteration}/{n // self.num_generations}" for n in numbers]
        members = [str(n % self.num_generations) for n in numbers]
        starts = sequences.starts
        counts = [each.size for each in starts]
        self._failed: dict[str, str] = {}  # groups with a fault in their data, and which

        def lists(name: str, entry: Any = finite) -> list[list[Any]]:
            """An entry for each turn, from the rollout function or from the environments."""
            given: Any = self._given.get(name)
            if given is None and self._readings:
                said = enumerate(counts)
                given = [[now[row][name] for now in self._readings[:count]] for row, count in said]
                if name == "turn_rewards":  # that of the last turn follows from the episode's
                    given = [np.diff(so_far, append=so_far[-1:]) for so_far in given]
                else:
                    given = [next((f for f in e if isinstance(f, ValueError)), e) for e in given]
            elif given is None and name == "turn_rewards":
                given = [[0.0] * count for count in counts]
            elif given is None:
                raise InputError(f"rollout_func returned no {name}: return a list for each episode")
            episodes = zip(groups, members, strict=True)
            kept, failed = turn_lists(name, given, counts, episodes, entry)
            self._failed |= failed
            return kept

        pairs = zip(sequences.prompts, sequences.completions, strict=True)
        tokens = [np.array([*prompt, *completion], ID) for prompt, completion in pairs]
        token_rewards = [np.zeros(len(ids)) for ids in tokens]
        for row, earned in enumerate(lists("turn_rewards")):
            places = len(sequences.prompts[row]) + starts[row]
            token_rewards[row][places[:-1]] = earned[:-1]
            token_rewards[row][-1] = finals[row] - sum(earned[:-1])
            self._compare_totals(row, earned, finals[row])
        states, actions = self._texts_of_turns or (None, None)
        if self.state_choice == "key":
            states = lists("turn_states", as_text)
        table, spans = from_sequences(
            tokens,
            [
                np.append(np.zeros(len(prompt), np.bool_), mask)
                for prompt, mask in zip(sequences.prompts, sequences.masks, strict=True)
            ],
            group=groups,
            trajectory=members,
            decode=self._decode,
            state=self.state_choice if states is None else "key",
            keys=states,
            truncated=self._truncated,
            token_rewards=token_rewards,
        )
        if actions is not None:  # after the turns stand episodes in which the model wrote nothing
            actions += [""] * (len(table) - len(actions))
            table = replace(table, action=Coded.encode(actions))
        columns = {}
        for name in self.recipe.columns:
            if name in INPUT_COLUMNS and name != "entropy":
                values = np.concatenate(lists(f"turn_{name}", float))
                columns[name] = np.append(values, np.full(len(table) - values.size, np.nan))
        return with_first_tokens(with_columns(table, columns), spans, tokens, self.recipe), spans

    def _compare_totals(self, row: int, earned: Sequence[float], final: float) -> None:
        """Warn once if what the turns of an episode were given is not in its reward."""
        given = self._given.get("turn_rewards")
        name, total = "turn_rewards of the rollout_func", math.fsum(earned)
        if given is None and self._readings:
            environment = self.environments[row]
            name = f"{SO_FAR} of {type(environment).__name__}"
            before = self._readings[0][row]["turn_rewards"]
            total = _reading(environment, keyed=False)["turn_rewards"] - before
        rest = final - total
        if self._told_totals or not any(earned[:-1]) or not abs(rest) > 1e-5 * max(1, abs(final)):
            return
        self._told_totals = True
        logging.getLogger(__name__).warning(
            "%s: %g in all for an episode to which the reward functions gave %g; the rewards of "
            "its turns sum to the latter, so its last turn gets %+g besides. If no reward function "
            "counts the rewards of turns, this takes them away again: have get_reward, or a reward "
            "function, return their sum with what else the episode earns",
            *(name, total, final, rest),
        )

    def _columns(self, spans: Spans) -> dict[str, Floats]:
        """The columns that the recipe needs and the model gives."""
        if self._entropies is None or "entropy" not in self.recipe.columns:
            return {}
        prompts = np.array([len(ids) for ids in self._sequences.prompts])[spans.sequence]
        here = replace(spans, start=spans.start - prompts, end=spans.end - prompts)
        return {"entropy": of_steps("entropy", list(self._entropies), here)}

    def _on_tokens(self, advantage: Floats, spans: Spans, batch: Tensors) -> Any:
        """The advantage of each turn on its tokens, in the shape of the batch's completions."""
        prompts = [len(ids) for ids in self._sequences.prompts[: len(spans.lengths)]]
        tokens = spread(advantage, spans.pad(batch["completion_ids"].shape[1], -np.array(prompts)))
        values = batch["advantages"].new_zeros(batch["completion_ids"].shape)
        values[: len(tokens)] = torch.from_numpy(tokens)
        return values

    def _credited(self, local: StepTable) -> tuple[CreditedSteps, Floats]:
        """The credit of all processes' turns, and the advantages of this one's."""
        if self.layer is not None:
            assert self._vectors is not None
            silent = len(local) - len(self._vectors)  # episodes without a turn have no state
            vectors = np.pad(self._vectors, ((0, silent), (0, 0)), constant_values=np.nan)
            local = replace(local, fingerprint=vectors)
        result = credit_gathered(
            local, self.recipe, self.check, failed=self._failed, history=self._history
        )
        self._carry(result[0])
        return result

    def _carry(self, credited: CreditedSteps) -> None:
        self._history_before = self._history
        self._history = credited.next_history(self._history)

    # Fingerprints and entropies come from TRL's pass for log-probabilities, or from another one.

    def _scored_by_trl(self, inputs: list[dict[str, Any]]) -> Tensors:
        self._vectors = self._entropies = None
        batch: Tensors = super()._generate_and_score_completions(inputs)
        if self._captures and self._vectors is None and self._entropies is None:
            self._capturing = True
            ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
            size, width = self.args.per_device_train_batch_size, batch["completion_ids"].shape[1]
            # Not TRL's mask, which may hide whole completions.
            lengths = ids.new_tensor([len(each) for each in self._sequences.completions])
            real = torch.arange(width, device=ids.device) < lengths[:, None]
            mask = torch.cat([batch["prompt_mask"], real.to(batch["prompt_mask"])], dim=1)
            with torch.no_grad():
                self._get_per_token_logps_and_entropies(self.model, ids, mask, width, size)
        return batch

    def _await_fingerprints(self) -> None:
        """Name the tokens whose hidden states are captured, by row and place in the completion."""
        starts = self._sequences.starts
        rows = np.repeat(np.arange(len(starts)), [each.size for each in starts])
        self._awaited = rows, np.concatenate(starts) - 1  # the token before each turn
        every = self._steps_of_iteration
        corrects = self.use_vllm and self.vllm_importance_sampling_correction
        # Else TRL's first pass, if there is one, is over the reference, or lacks completions.
        own = self.args.gradient_accumulation_steps % every != 0 or corrects
        self._capturing = own and not self.mask_truncated_completions

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: Any,
        attention_mask: Any,
        logits_to_keep: int,
        batch_size: int | None = None,
        **options: Any,
    ) -> Any:
        score = super()._get_per_token_logps_and_entropies
        given = (model, input_ids, attention_mask, logits_to_keep)
        options["batch_size"] = batch_size
        if not self._captures or not self._capturing:
            return score(*given, **options)
        self._capturing = False
        if "entropy" in self.recipe.columns:
            options["compute_entropy"] = True
        if self.layer is None:
            scores = score(*given, **options)
        else:
            rows, offsets = self._awaited
            count, width = input_ids.shape
            size = batch_size or count
            with capture(model, self.layer, dtype=torch.float16, device="cpu") as hidden:
                for start in range(0, count, size):
                    here = (rows >= start) & (rows < start + size)
                    columns = offsets[here] + width - logits_to_keep
                    shape = (min(size, count - start), width)
                    hidden.expect(Places(rows[here] - start, columns, shape))
                scores = score(*given, **options)
            self._vectors = hidden.fingerprints().numpy()
        if scores[1] is not None:
            self._entropies = scores[1].detach().float().cpu().numpy()
        return scores

    def _prepare_inputs(self, generation_batch: Any) -> Any:
        inputs = super()._prepare_inputs(generation_batch)
        if self._amid and self.model.training:  # the iteration is played again; its rest is trained
            self._step, self._amid = self._step + self._amid, 0
            inputs = super()._prepare_inputs(generation_batch)
        return inputs

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Any:
        """As GRPOTrainer's, with its time taken, and the carried state kept for a checkpoint."""
        with self._clock("update"):
            loss = super().training_step(model, inputs, num_items_in_batch)
        finished = self._step % self._steps_of_iteration == 0
        if finished:
            spent = self._clock.lap()
            self._note({f"ascribe/seconds/{phase}": spent[phase] for phase in spent})
        if self.recipe.has_history:
            # Transformers writes this last into a checkpoint. Inside an iteration: a resumed run
            # plays it again.
            carried = self._history if finished else self._history_before
            self.state.stateful_callbacks[CARRIED] = carried
        return loss

    def _note(self, metrics: Mapping[str, float]) -> None:
        """Log the metrics with TRL's own, as means since the last line."""
        for name, value in metrics.items():
            self._metrics["train"][name].append(value)


def _reading(environment: Any, *, keyed: bool) -> dict[str, Any]:
    """What an environment says between two turns, under the names of a rollout function's lists."""
    so_far = _attribute(environment, SO_FAR, 0.0)
    try:
        number = float(so_far) if isinstance(so_far, SupportsFloat) else math.nan
    except (TypeError, ValueError):  # an array
        number = math.nan
    said: dict[str, Any] = {"turn_rewards": number}
    if keyed:
        try:
            said["turn_states"] = _state(environment)
        except ValueError as problem:
            said["turn_states"] = problem
    return said


def _state(environment: Any) -> str | None:
    """The text of an environment's ``state_key``; ValueError if it has none."""
    kind, value = type(environment).__name__, _attribute(environment, KEY, _attribute)
    if value is _attribute:
        raise InputError(f"state='key': {kind} has no attribute {KEY}")
    text = as_text(value)
    if text is not None and re.search(" at 0x[0-9a-f]+>", text):
        raise InputError(
            f"state='key': {KEY} of {kind} is {text}, whose text is another for each object",
            hint="return a text of what it holds",
        )
    return text


def _attribute(environment: Any, name: str, default: Any) -> Any:
    """An attribute of an environment; an error inside a property does not count as none."""
    try:
        return getattr(environment, name)
    except AttributeError:
        if inspect.getattr_static(environment, name, None) is not None:
            raise
        return default
