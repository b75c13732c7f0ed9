"""``LoopSteps``: the steps of any agent loop, read from its tokens, and their credit.

A row of verl's holds a prompt, and a response in which ``response_mask`` is 1 where the model wrote
the token. A step is a run of ones, unless the loop says where the turns are: ``ToolAgentLoop`` does
(``tools``), and any loop may by ``turn_spans`` in ``extra_fields``, a list of ``[BEGIN, END]`` in
the response. Then zeros in the mask of a turn leave it whole. Rows of one prompt (``uid``) are a
group, rows of one session an episode: a session of several rows (a compacted history, sub-agents)
counts once. The keys ``ascribe.*`` of verl's configuration say how the steps are credited:

========================  ==========================================================================
``ascribe.recipe``        name of the recipe
``ascribe.state``         the state of a step: the last ``observation``, the ``tool`` result, the
                          whole ``history``, or a ``key``: the entry of ``turn_states``, a list
                          that the agent loop puts into ``extra_fields``, or what tools report
``ascribe.rewards``       ``final``, ``tool_rewards`` for those of verl's tools, or the name of a
                          list in ``extra_fields`` with the reward of each turn
``ascribe.fingerprints``  decoder block whose hidden state is a state's fingerprint
``ascribe.check``         what to do about steps that cannot be credited
``ascribe.dump``          folder for the steps of each update
``ascribe.versions``      versions of the policy that a group may span; null: any number
``ascribe.stale``         what to do about a group that spans more: ``drop``, ``refuse``, ``credit``
========================  ==========================================================================

All other keys are parameters of the recipe.
"""

import logging
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from omegaconf import OmegaConf
from verl.utils.fs import copy_to_local
from verl.utils.model import get_generation_config

from ascribe.engines import training_recipe
from ascribe.engines.crediting import (
    CreditedSteps,
    History,
    credit_steps,
    fingerprint_layer,
    with_first_tokens,
    write_steps,
)
from ascribe.engines.inputs import (
    as_text,
    finite,
    missing_columns,
    of_steps,
    refuse_unknown,
    turn_lists,
    uncompared,
    with_columns,
    with_tasks,
)
from ascribe.engines.metrics import credit_metrics
from ascribe.engines.verl.batch import BatchRows, queue_rows
from ascribe.engines.verl.lineages import Lineages
from ascribe.engines.verl.options import ACTOR, problems
from ascribe.engines.verl.tools import CALLS, RECORDED, TRUNCATED, checksum
from ascribe.engines.verl.vectors import fingerprints
from ascribe.engines.versions import SampledVersions, Staleness
from ascribe.estimators import DEFAULT, Recipe
from ascribe.sessions import Loss, Spans, State, from_sequences, loss_weights
from ascribe.sessions.decoding import decoder
from ascribe.sessions.endings import end_tokens
from ascribe.sessions.sequences import ID, START, Decoder
from ascribe.sessions.spans import Ragged, turn_starts
from ascribe.steps.arrays import Bools, Floats, Ints
from ascribe.steps.errors import InputError
from ascribe.steps.problems import one_line
from ascribe.steps.select import OnProblem
from ascribe.steps.table import StepTable

FINAL = "final"
"""The choice of rewards: the score of the whole episode, at its last turn."""
TOOL_REWARDS = "tool_rewards"
"""The choice of rewards: those of tool calls, at the turns that made them."""
SPANS = "turn_spans"
"""The list in ``extra_fields`` with where each turn begins and ends in the response."""
STATES = "turn_states"
"""The list in ``extra_fields`` with the state of each turn."""
LOSSES: dict[Any, Loss] = {
    "seq-mean-token-mean": "row-mean",
    "seq-mean-token-sum": "row-sum",
    "seq-mean-token-sum-norm": "row-sum",
}
"""verl's aggregations of the loss that count rows."""
OWN_MODES = {"sapo": "seq-mean-token-mean"}
"""The aggregation of verl's policy losses that have one of their own."""
SCORES = {"score": "turn_score", "step_score": "turn_step_score"}
"""Columns of the step table, and lists in ``extra_fields`` with an entry for each turn."""


class LoopSteps:
    """The steps of verl's own agent loops, or of a user's.

    Args:
        config: verl's whole configuration, with the keys ``ascribe.*``.

    Raises:
        ValueError: for keys that are wrong, or would be without effect.
    """

    minibatches: int | None = None
    """None where verl's own are right: verl counts rows, and not sessions, and those too that are
    dropped or have no token."""

    def __init__(self, config: Any) -> None:
        keys = dict(
            OmegaConf.to_container(config.get("ascribe") or OmegaConf.create(), resolve=True)
        )
        name = keys.pop("recipe", DEFAULT)
        self.state: State = keys.pop("state", "observation")
        refuse_unknown("ascribe.state", self.state, State)
        self.rewards: str = keys.pop("rewards", FINAL)
        self.check: OnProblem = keys.pop("check", "drop")
        refuse_unknown("ascribe.check", self.check, OnProblem)
        self.dump: str | None = keys.pop("dump", None)
        layer = keys.pop("fingerprints", None)
        try:
            self.staleness = Staleness(keys.pop("versions", None), keys.pop("stale", "drop"))
            self.recipe = training_recipe(name, **keys)
            self.layer = fingerprint_layer(self.recipe, layer, "ascribe.fingerprints")
        except InputError as error:
            raise error.within("ascribe.*") from error
        except (TypeError, ValueError) as error:
            raise InputError(str(error), "ascribe.*") from error
        lists = [given for name, given in SCORES.items() if name in self.recipe.columns]
        lists += [self.rewards] if self.rewards not in (FINAL, TOOL_REWARDS) else []
        own = OmegaConf.select(config, "actor_rollout_ref.rollout.agent.agent_loop_config_path")
        missing = missing_columns(self.recipe, "verl", ("entropy", "value", *SCORES))
        others = {
            f"{', '.join(lists)}: verl's own agent loops give no such list; name a loop that does "
            "in actor_rollout_ref.rollout.agent.agent_loop_config_path": bool(lists and not own),
            f"ascribe.recipe: {missing}": missing is not None,
            f"ascribe.fingerprints: {self.recipe.name} compares none here; leave it out": (
                layer is not None and self.layer is None
            ),
            f"ascribe.fingerprints: the number of a decoder block is expected, not {layer!r}": (
                layer is not None and type(layer) is not int
            ),
        }
        refuse_without_effect(config, self.recipe, self.layer, others)
        lists += [STATES] * (self.state == "key") + [TOOL_REWARDS] * (self.rewards == TOOL_REWARDS)
        self.lists = lists
        episodes = OmegaConf.select(config, "data.train_batch_size", default=1)
        size = OmegaConf.select(config, "actor_rollout_ref.actor.ppo_mini_batch_size", default=1)
        self.updates = max(1, math.ceil(episodes / updates_per_step(config) / size))
        """Of the policy, with each batch."""
        mode = OmegaConf.select(config, f"{ACTOR}loss_agg_mode")
        policy_loss = OmegaConf.select(config, f"{ACTOR}policy_loss.loss_mode")
        self.loss: Loss | None = LOSSES.get(OWN_MODES.get(policy_loss, mode))
        self.model = OmegaConf.select(config, "actor_rollout_ref.model.path")
        self.ends: frozenset[int] | None = None
        self.decode: Decoder | None = None

    def credit(self, batch: Any, *inputs: Any, **options: Any) -> tuple[CreditedSteps, Spans]:
        """Credit the steps of a batch in TransferQueue; the rest is as in ``credit_rows``."""
        remembers = bool(getattr(self.recipe, "memory", 0))
        return self.credit_rows(queue_rows(batch, tasks=remembers), *inputs, **options)

    def credit_rows(
        self,
        rows: BatchRows,
        tokenizer: Any,
        history: History,
        metrics: dict[str, Any],
        *,
        version: int,
        tokens: Mapping[str, Sequence[Floats]] | None = None,
    ) -> tuple[CreditedSteps, Spans]:
        """Credit the steps of a batch's rows.

        Args:
            rows: of the batch.
            tokenizer: of the model.
            history: the state that the recipe carried over.
            metrics: of the step; those of the credit are added.
            version: of the policy that is trained.
            tokens: numbers of the responses' tokens in each row of the batch, by the column that
                they give.

        Returns:
            The credit, and for each step where its tokens are in the responses of the batch.
        """
        if self.ends is None:
            self.ends = end_tokens(tokenizer, get_generation_config(copy_to_local(self.model)))
            self.decode = decoder(tokenizer)
        sessions = rows.sessions
        written, starts, masked, faults = _written(rows)
        ends = np.cumsum(rows.responses.sizes)
        turns = np.diff(np.searchsorted(starts, ends), prepend=0).tolist()
        lists, found_faults = self._turn_lists(rows, turns)
        faults |= found_faults
        lineages = Lineages.of(sessions, turns, rows.extra)
        # That of the session's last row, as in verl.
        score_of = dict(zip(sessions, _sums(rows.scores), strict=True))
        score = [score_of[session] for session in sessions]
        ids, mask = _sequences(rows, written)
        table, spans = from_sequences(
            ids,
            mask,
            group=[uid for uid, _ in sessions],
            trajectory=[session for _, session in sessions],
            agent=lineages.agents,
            order=lineages.order,
            decode=self.decode,
            state=self.state,
            keys=lists[STATES] if self.state == "key" else None,
            truncated=_truncated(rows, written, self.ends),
            reward=score if self.rewards == FINAL else None,
            turn_rewards=None if self.rewards == FINAL else lists[self.rewards],
        )
        if self.rewards != FINAL:
            table = _with_rest(table, np.array(score)[spans.sequence])
        table = with_tasks(lineages.with_parents(table, spans), rows.tasks, spans)
        table = with_first_tokens(table, spans, ids, self.recipe)
        found = {
            name: np.array(
                [
                    lists[given][at][turn] if turn >= 0 else np.nan
                    for at, turn in zip(spans.sequence, spans.turn, strict=True)
                ]
            )
            for name, given in SCORES.items()
            if given in self.lists
        }
        of_rows = spans.sequence
        spans = _in_batch(spans, rows)
        compute = None
        if self.layer is not None:
            places, hidden = _captured(spans, rows)
            faults |= dict.fromkeys((sessions[at][0] for at in hidden), "masked_turn")
            whole = self.dump is not None
            vectors, compute = fingerprints(rows.queue, places, self.recipe, whole=whole)
            table = replace(table, fingerprint=vectors)
        found |= {name: of_steps(name, each, spans) for name, each in (tokens or {}).items()}
        table = with_columns(table, found)
        self.sampled = SampledVersions.of(
            table.group.texts(), table.trajectory.texts(), rows.versions, version, of_rows
        )
        dropped = faults | lineages.faults | self.staleness.dropped(self.sampled, metrics)
        credited = credit_steps(
            table, self.recipe, self.check, failed=dropped, history=history, compute=compute
        )
        several = len(set(sessions)) < len(sessions)
        every = credited.learned.all() and rows.masks.any_of(rows.masks.flat(np.bool_)).all()
        self.minibatches = None if every and not several else self.updates
        metrics.update(credit_metrics(credited))
        metrics["ascribe/masked_turns"] = masked
        counted = table.take(credited.counts)
        if episodes := np.unique(counted.trajectory.codes).size:
            metrics["ascribe/return"] = float(counted.reward.sum()) / episodes
            metrics["ascribe/turns"] = len(counted) / episodes
        metrics["ascribe/episodes"] = episodes
        return credited, spans

    def loss_weights(self, credited: CreditedSteps, spans: Spans, learned: Sequence[int]) -> Floats:
        """For each row, what its advantages are multiplied by.

        A session of several rows has the loss of one that holds all their tokens, whatever verl's
        ``loss_agg_mode``: a mean over rows becomes one over sessions.

        Args:
            credited: the steps.
            spans: where their tokens are.
            learned: the rows to learn from.
        """
        weights = np.ones(spans.lengths.size)
        if self.minibatches is not None and self.loss is not None:
            chosen = np.array(learned, dtype=np.int64)
            rows, own = spans.take(chosen)
            kept = (np.cumsum(credited.counts) - 1)[rows]
            weights[chosen] = loss_weights(credited.table.take(kept), own, self.loss)
        return weights

    def write(self, credited: CreditedSteps, number: int) -> None:
        """Write the steps of an update, if the run asks for them."""
        if self.dump is not None:
            write_steps(credited, self.dump, number, columns=self.sampled.columns)

    def _turn_lists(
        self, rows: BatchRows, turns: Sequence[int]
    ) -> tuple[dict[str, list[list[Any]]], dict[str, str]]:
        """The lists that the configuration asks for, and the groups with a malformed one."""
        lists: dict[str, list[list[Any]]] = {}
        faults: dict[str, str] = {}
        for name in self.lists:
            if not any(_gives(name, fields) for fields in rows.extra):
                raise InputError(
                    f"none of {len(rows.extra)} rows has {name} in extra_fields: the agent loop "
                    "must put a list there, with an entry for each turn"
                )
            given = [_turn_list(name, *pair) for pair in zip(rows.extra, turns, strict=True)]
            entry = as_text if name == STATES else _number
            lists[name], found = turn_lists(name, given, turns, rows.sessions, entry)
            faults |= found
        return lists, faults


def _written(rows: BatchRows) -> tuple[Bools, Ints, int, dict[str, str]]:
    """All responses end to end: 1 in turns; where turns begin; turns with masked tokens; faults.

    Faults are the groups with bad ``turn_spans``. The mask tells the turns of a row whose loop does
    not, or that holds another response now.
    """
    shown, faults = rows.masks.flat(np.bool_), {}
    written, begins = shown.copy(), np.cumsum(rows.masks.sizes) - rows.masks.sizes
    for row, fields in enumerate(rows.extra):
        given, recorded = fields.get(SPANS), fields.get(RECORDED)
        if given is None and recorded is None:
            continue
        place, own = slice(begins[row], begins[row] + rows.masks.sizes[row]), None
        if given is not None:
            own = _filled(given, shown[place])
            if own is None:
                group, session = rows.sessions[row]
                faults[str(group)] = f"bad_{SPANS}"
                logging.getLogger(__name__).warning(
                    "episode %s/%s: %s is %s, but must hold [BEGIN, END] of each turn, with tokens "
                    "of others between them, and all tokens with mask 1 in them; its group is "
                    "dropped",
                    *(group, session, SPANS, one_line(given)),
                )
        elif recorded is not None and recorded[0] == checksum(rows.responses[row]):
            own = _filled(recorded[1], shown[place])
        if own is not None:
            written[place] = own
    starts = turn_starts(written, begins)
    hidden = np.flatnonzero(written & ~shown)
    return written, starts, np.unique(np.searchsorted(starts, hidden, "right")).size, faults


def _truncated(rows: BatchRows, written: Bools, ends: Collection[int]) -> Bools:
    """As ``is_truncated`` of each row, of which a last turn may lack an answer."""
    sizes = rows.responses.sizes
    after = np.cumsum(sizes)
    # Read from the end, the first run of a row is its last one.
    last = written.size - 1 - turn_starts(written[::-1], written.size - after)[::-1]
    count = np.diff(np.searchsorted(last, after), prepend=0)
    spoke = np.flatnonzero(count)
    places = last[np.cumsum(count)[spoke] - 1] - (after - sizes)[spoke]
    final = rows.responses.values[rows.responses.starts[spoke] + places]
    cut = np.array([bool(fields.get(TRUNCATED)) for fields in rows.extra], dtype=np.bool_)
    ended = np.zeros(cut.size, dtype=np.bool_)
    ended[spoke] = np.isin(final, list(ends))
    return cut | ~ended


def _sums(scores: Ragged) -> list[float]:
    """The sum of each row, of which few have more than one number other than 0."""
    flat = scores.flat(scores.values.dtype)
    places = np.flatnonzero(flat)
    row = np.searchsorted(np.cumsum(scores.sizes), places, side="right")
    sums = np.zeros(len(scores))
    sums[row] = flat[places]
    for several in np.flatnonzero(np.bincount(row, minlength=sums.size) > 1):
        sums[several] = np.sum(scores[several])
    found: list[float] = sums.tolist()
    return found


def _sequences(rows: BatchRows, written: Bools) -> tuple[Ragged, Ragged]:
    """The tokens of prompts and responses, and where the model wrote them."""
    sizes = np.stack([rows.prompts.sizes, rows.responses.sizes], axis=1)
    is_response = np.repeat(np.arange(sizes.size) % 2 == 1, sizes.ravel())
    ids, mask = np.empty(is_response.size, ID), np.zeros(is_response.size, np.bool_)
    ids[is_response], mask[is_response] = rows.responses.flat(ID), written
    ids[~is_response] = rows.prompts.flat(ID)
    lengths = sizes.sum(axis=1)
    starts = np.cumsum(lengths) - lengths
    return Ragged(ids, starts, lengths), Ragged(mask, starts, lengths)


def _filled(spans: Any, shown: Bools) -> Bools | None:
    """1 in these spans; None if they are malformed."""
    filled = np.zeros(shown.size, dtype=np.bool_)
    last = -1
    try:
        for begin, end in ((int(begin), int(end)) for begin, end in spans):
            if not last < begin < end <= shown.size:
                return None
            filled[begin:end], last = True, end
    except (TypeError, ValueError):
        return None
    return None if (shown & ~filled).any() else filled


def _captured(spans: Spans, rows: BatchRows) -> tuple[Spans, list[int]]:
    """The spans by the runs of the mask, where workers take fingerprints.

    A turn has that of its first run. The second value are the rows with a turn that has none.
    """
    turns, turn, hidden = spans.turns.copy(), spans.turn.copy(), []
    order = np.argsort(spans.sequence, kind="stable")
    bounds = np.searchsorted(spans.sequence[order], [rows.places, rows.places + 1])
    for at, (first, last) in enumerate(bounds.T.tolist()):
        own = order[first:last][spans.turn[order[first:last]] >= 0]
        starts = np.append(turn_starts(rows.masks[at]), np.iinfo(np.int64).max)
        turn[own] = np.searchsorted(starts, spans.prompt[own] - rows.prompts[at].size)
        missing = starts[turn[own]] >= spans.end[own]
        turn[own[missing]] = 0
        turns[rows.places[at]] = starts.size - 1
        hidden += [at] * bool(missing.any())
    return replace(spans, turns=turns, turn=turn), hidden


def _with_rest(table: StepTable, score: Floats) -> StepTable:
    """The table in which the last step of an episode also has what its steps lack of its score.

    Args:
        table: the steps, with the rewards of turns.
        score: of each step's episode.
    """
    episode = table.trajectory.codes
    last = np.zeros(table.trajectory.values.size, dtype=np.int64)
    in_time = np.argsort(table.step)
    last[episode[in_time]] = in_time
    reward = table.reward.copy()
    reward[last] += score[last] - np.bincount(episode, table.reward)
    return replace(table, reward=reward)


def _gives(name: str, fields: Mapping[str, Any]) -> bool:
    """Whether a row has a list of this name; calls of which none reports a state give no states."""
    calls = fields.get(CALLS)
    if name == STATES and name not in fields and calls is not None:
        return not calls or any(state is not None for _, _, state in calls)
    return name in fields


def _turn_list(name: str, fields: Mapping[str, Any], turns: int) -> Any:
    """An entry for each turn of a row, if what it gives is well formed.

    The reward of a turn is that of its calls, and its state what the last call before it reported.
    """
    calls, given = fields.get(CALLS), fields.get(name)
    if name == STATES and given is None and calls is not None:
        told = [(turn, state) for turn, _, state in reversed(calls) if state is not None]
        return [next((s for at, s in told if at < turn), START) for turn in range(turns)]
    if name == TOOL_REWARDS and (calls is not None or (isinstance(given, list) and not given)):
        paid = [(turn, reward) for turn, reward, _ in calls or () if reward is not None]
        return [[reward for at, reward in paid if at == turn] for turn in range(turns)]
    return given


def _number(value: Any) -> float:
    """A finite number, or the sum of several."""
    return math.fsum(map(finite, value)) if isinstance(value, list) else finite(value)


def _in_batch(spans: Spans, rows: BatchRows) -> Spans:
    """The spans of these rows' sequences as those of a batch's responses."""
    shift = rows.prompts.sizes
    lengths, turns = np.zeros(rows.size, dtype=np.int64), np.zeros(rows.size, dtype=np.int64)
    lengths[rows.places], turns[rows.places] = spans.lengths - shift, spans.turns
    before = shift[spans.sequence]
    return replace(
        spans,
        sequence=rows.places[spans.sequence],
        start=spans.start - before,
        end=spans.end - before,
        lengths=lengths,
        turns=turns,
    )


def updates_per_step(config: Any) -> int:
    """How many batches a step has; the separate trainer trains on several."""
    separate = str(OmegaConf.select(config, "trainer.v1.trainer_mode")).endswith("separate_async")
    return int(config.trainer.v1.separate_async.parameter_sync_step) if separate else 1


def refuse_without_effect(
    config: Any, recipe: Recipe, layer: int | None, others: Mapping[str, bool] | None = None
) -> None:
    """Refuse settings that would have no effect, or give a wrong update.

    Args:
        config: verl's whole configuration.
        recipe: the estimator.
        layer: decoder block that fingerprints are taken from; None without fingerprints.
        others: what else would be wrong, and whether it is.

    Raises:
        ValueError: with verl's key, and what to set.
    """
    critic = bool(OmegaConf.select(config, "critic.enable"))
    bypasses = bool(OmegaConf.select(config, "algorithm.rollout_correction.bypass_mode"))
    values = "value" in recipe.columns
    strategy = OmegaConf.select(config, "actor_rollout_ref.actor.strategy", default="fsdp")
    size = OmegaConf.select(config, "actor_rollout_ref.actor.ppo_mini_batch_size")
    alone = uncompared(recipe, OmegaConf.select(config, "actor_rollout_ref.rollout.n"))
    wrong = {
        "critic.enable: the baseline is the recipe's; a critic would learn for nothing": (
            critic and not values
        ),
        "critic.ppo_mini_batch_size: the critic learns from the actor's minibatches; set it to the "
        "actor's": critic and OmegaConf.select(config, "critic.ppo_mini_batch_size") != size,
        f"critic.enable: {recipe.name} needs the column value, which verl's critic gives; set it "
        "to True, and critic.model.path": values and not critic,
        f"actor_rollout_ref.rollout.n: {alone}": alone is not None,
        "actor_rollout_ref.actor.strategy: fingerprints need fsdp or fsdp2": (
            layer is not None and strategy not in ("fsdp", "fsdp2")
        ),
        "ulysses_sequence_parallel_size: fingerprints need whole sequences; set it to 1": (
            layer is not None and _sequence_parallel(config) > 1
        ),
        "algorithm.rollout_correction.bypass_mode: fingerprints come from the pass that it leaves "
        "out": layer is not None and bypasses,
        "algorithm.rollout_correction.bypass_mode: entropies come from the pass it leaves out": (
            "entropy" in recipe.columns and bypasses
        ),
        **(others or {}),
    }
    found = [*problems(config), *(problem for problem, is_wrong in wrong.items() if is_wrong)]
    if found:
        raise InputError("\n".join(found))


def _sequence_parallel(config: Any) -> int:
    """Ranks that share a sequence, by verl's key or by its older name."""
    places = ("actor_rollout_ref.actor.fsdp_config", "actor_rollout_ref.actor")
    names = [f"{place}.ulysses_sequence_parallel_size" for place in places]
    return max(int(OmegaConf.select(config, name, default=1)) for name in names)
