"""``LoopSteps``: the steps of any agent loop, read from its tokens, and their credit.

A row of verl's holds a prompt, and a response in which ``response_mask`` is 1 where the model wrote
the token. A step is a run of ones. Rows of one prompt (``uid``) are a group, rows of one session an
episode. The keys ``ascribe.*`` of verl's configuration say how the steps are credited:

========================  ==========================================================================
``ascribe.recipe``        name of the recipe
``ascribe.state``         the state of a step: the last ``observation``, the ``tool`` result, the
                          whole ``history``, or a ``key``: the entry of ``turn_states``, a list
                          that the agent loop puts into ``extra_fields``
``ascribe.rewards``       ``final``, or the name of a list in ``extra_fields`` with the reward of
                          each turn, such as ``turn_scores``
``ascribe.fingerprints``  decoder block whose hidden state is a state's fingerprint
``ascribe.check``         what to do about steps that cannot be credited
``ascribe.dump``          folder for the steps of each update
``ascribe.oversample``    extra prompts to play; as many groups, those that end last, are dropped
``ascribe.versions``      versions of the policy that a group may span; null: any number
``ascribe.stale``         what to do about a group that spans more: ``drop``, ``refuse``, ``credit``
========================  ==========================================================================

All other keys are parameters of the recipe.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args

import numpy as np
from omegaconf import OmegaConf

from ascribe.conversations import Spans, State, from_sequences
from ascribe.engines.crediting import (
    CreditedSteps,
    History,
    credit_steps,
    fingerprint_layer,
    with_first_tokens,
    write_steps,
)
from ascribe.engines.inputs import of_steps, with_columns
from ascribe.engines.metrics import credit_metrics
from ascribe.engines.verl.batch import extra_fields, fetch, is_padding
from ascribe.engines.verl.vectors import fingerprints
from ascribe.engines.verl.versions import SampledVersions, Staleness
from ascribe.estimators import Recipe
from ascribe.estimators import recipe as make_recipe
from ascribe.steps.arrays import Floats, Ints

STATES = "turn_states"
"""The key in ``extra_fields`` with the state of each turn."""

FINAL = "final"
"""The choice of rewards: the score of the whole episode, at its last turn."""


class LoopSteps:
    """The steps of verl's own agent loops, or of a user's.

    Args:
        config: verl's whole configuration, with the keys ``ascribe.*``.

    Raises:
        ValueError: for keys that are wrong, or would be without effect.
    """

    minibatches: int | None = None
    minibatch_rows: int | None = None
    """verl's own."""

    def __init__(self, config: Any) -> None:
        keys = dict(
            OmegaConf.to_container(config.get("ascribe") or OmegaConf.create(), resolve=True)
        )
        name = keys.pop("recipe", None)
        if name is None:
            raise ValueError(
                "trainer_mode=ascribe needs a recipe: add +ascribe.recipe=gigpo, or another one "
                "that ascribe recipes lists"
            )
        self.state: State = keys.pop("state", "observation")
        if self.state not in get_args(State):
            states = ", ".join(get_args(State))
            raise ValueError(f"ascribe.state: no state {self.state!r}; there are: {states}")
        self.rewards: str = keys.pop("rewards", FINAL)
        self.check = keys.pop("check", "drop")
        self.dump: str | None = keys.pop("dump", None)
        self.oversample = int(keys.pop("oversample", 0))
        layer = keys.pop("fingerprints", None)
        try:
            self.staleness = Staleness(keys.pop("versions", None), keys.pop("stale", "drop"))
            self.recipe = make_recipe(name, **keys)
            self.layer = fingerprint_layer(self.recipe, layer)
        except (TypeError, ValueError) as error:
            raise ValueError(f"ascribe.*: {error}") from error
        refuse_without_effect(config, self.recipe, self.layer)

    def metrics_file(self, done: int) -> Any:  # noqa: ARG002
        """None: verl's own loggers have the metrics."""
        return None

    def credit(
        self,
        batch: Any,
        tokenizer: Any,
        history: History,
        metrics: dict[str, Any],
        *,
        version: int,
        tokens: Mapping[str, Sequence[Floats]] | None = None,
    ) -> tuple[CreditedSteps, Spans]:
        """Credit the steps of a batch; as ``EpisodeSteps.credit``."""
        rows, sessions = _sessions(batch)
        names = ("prompts", "responses", "response_mask", "rm_scores")
        data = fetch(batch, *names)
        columns = [data[name].unbind() for name in names]
        prompts, responses, masks, scores = (
            [column[row].numpy() for row in rows] for column in columns
        )
        every = extra_fields(batch)
        extra = [every[row] for row in rows]
        ids = list(map(np.append, prompts, responses))
        table, spans = from_sequences(
            ids,
            [np.append(np.zeros_like(p), m) for p, m in zip(prompts, masks, strict=True)],
            group=[uid for uid, _ in sessions],
            trajectory=[session for _, session in sessions],
            decode=tokenizer.decode,
            state=self.state,
            keys=_lists(extra, STATES) if self.state == "key" else None,
            truncated=[each[-1] != tokenizer.eos_token_id for each in responses],
            **self._rewards(sessions, prompts, masks, scores, extra),
        )
        table = with_first_tokens(table, spans, ids, self.recipe)
        spans = _in_batch(spans, rows, prompts, len(batch))
        compute = None
        if self.layer is not None:
            whole = self.dump is not None
            vectors, compute = fingerprints(batch, spans, self.recipe, whole=whole)
            table = replace(table, fingerprint=vectors)
        found = {name: of_steps(name, each, spans) for name, each in (tokens or {}).items()}
        for name in ("score", "step_score"):
            if name in self.recipe.columns:
                given = _lists(extra, f"turn_{name}")
                found[name] = np.array([v for turns in given for v in turns], dtype=np.float64)
        table = with_columns(table, found)
        self.sampled = SampledVersions.of(
            table.group.texts(), table.trajectory.texts(), spans.sequence, batch.tags, version
        )
        dropped = self.staleness.dropped(self.sampled, metrics)
        credited = credit_steps(
            table, self.recipe, self.check, failed=dropped, history=history, compute=compute
        )
        metrics.update(credit_metrics(credited))
        return credited, spans

    def write(self, credited: CreditedSteps, number: int) -> None:
        """Write the steps of an update, if the run asks for them."""
        if self.dump is not None:
            write_steps(credited, self.dump, number, columns=self.sampled.columns)

    def _rewards(
        self,
        sessions: Sequence[tuple[str, int]],
        prompts: Sequence[Any],
        masks: Sequence[Any],
        scores: Sequence[Any],
        extra: Sequence[Mapping[str, Any]],
    ) -> dict[str, Any]:
        """The scores of episodes, or those of turns, whose sums are the scores of episodes."""
        finals = [float(score.sum()) for score in scores]
        if self.rewards == FINAL:
            return {"reward": finals}
        rest = dict(zip(sessions, finals, strict=True))
        token_rewards = []
        for row, values in enumerate(_lists(extra, self.rewards)):
            begins = np.flatnonzero(np.diff(masks[row], prepend=0) == 1)
            if len(values) > begins.size:
                raise ValueError(
                    f"ascribe.rewards: {self.rewards} has {len(values)} rewards for the "
                    f"{begins.size} turns of session {'_'.join(map(str, sessions[row]))}; put one "
                    "for each turn into extra_fields"
                )
            tokens = np.zeros(prompts[row].size + masks[row].size)
            tokens[prompts[row].size + begins[: len(values)]] = values
            rest[sessions[row]] -= tokens.sum()
            token_rewards.append(tokens)
        # What is left belongs to the last turn of the episode.
        for session, row in {session: row for row, session in enumerate(sessions)}.items():
            token_rewards[row][-1] += rest[session]
        return {"token_rewards": token_rewards}


def _sessions(batch: Any) -> tuple[Ints, list[tuple[str, int]]]:
    """The rows that are not padding, and the prompt and session of each.

    The rows of a session are one episode, and come in the order of their numbers.
    """
    names = {}
    for row, (key, tag) in enumerate(zip(batch.keys, batch.tags, strict=True)):
        if not is_padding(tag):
            uid, session, number = key.rsplit("_", 2)
            names[row] = (uid, int(session), int(number))
    rows = sorted(names, key=names.__getitem__)
    return np.array(rows, dtype=np.int64), [names[row][:2] for row in rows]


def _lists(extra: Sequence[Mapping[str, Any]], name: str) -> list[list[Any]]:
    """A list that the agent loop put into ``extra_fields``, of each row."""
    missing = sum(name not in fields for fields in extra)
    if missing:
        raise ValueError(
            f"{missing} of {len(extra)} rows have no {name} in extra_fields: the agent loop must "
            "put a list there, with an entry for each turn"
        )
    return [list(fields[name]) for fields in extra]


def _in_batch(spans: Spans, rows: Ints, prompts: Sequence[Any], size: int) -> Spans:
    """The spans of these rows' sequences as those of a batch's responses."""
    shift = np.array([prompt.size for prompt in prompts], dtype=np.int64)
    lengths, turns = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
    lengths[rows], turns[rows] = spans.lengths - shift, spans.turns
    before = shift[spans.sequence]
    return replace(
        spans,
        sequence=rows[spans.sequence],
        start=spans.start - before,
        end=spans.end - before,
        lengths=lengths,
        turns=turns,
    )


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
    algorithm, critic = config.algorithm, bool(OmegaConf.select(config, "critic.enable"))
    values = "value" in recipe.columns
    wrong = {
        f"algorithm.adv_estimator: {algorithm.adv_estimator}; with trainer_mode=ascribe it must be "
        "ascribe": algorithm.adv_estimator != "ascribe",
        "algorithm.use_kl_in_reward: rewards are the environment's; use actor.use_kl_loss": bool(
            algorithm.use_kl_in_reward
        ),
        "critic.enable: the baseline is the recipe's; a critic would learn for nothing": (
            critic and not values
        ),
        f"critic.enable: {recipe.name} needs the column value, which verl's critic gives; set it "
        "to True, and critic.model.path": values and not critic,
        "ulysses_sequence_parallel_size: fingerprints need whole sequences; set it to 1": (
            layer is not None and _sequence_parallel(config) > 1
        ),
        "algorithm.rollout_correction.bypass_mode: fingerprints come from the pass that it leaves "
        "out": layer is not None and _bypasses(algorithm),
        "algorithm.rollout_correction.bypass_mode: entropies come from the pass it leaves out": (
            "entropy" in recipe.columns and _bypasses(algorithm)
        ),
        **(others or {}),
    }
    problems = [problem for problem, is_wrong in wrong.items() if is_wrong]
    if problems:
        raise ValueError("\n".join(problems))


def _sequence_parallel(config: Any) -> int:
    """Ranks that share a sequence, by verl's key or by its older name."""
    places = ("actor_rollout_ref.actor.fsdp_config", "actor_rollout_ref.actor")
    names = [f"{place}.ulysses_sequence_parallel_size" for place in places]
    return max(int(OmegaConf.select(config, name, default=1)) for name in names)


def _bypasses(algorithm: Any) -> bool:
    correction = algorithm.get("rollout_correction", None)
    return bool(correction and correction.get("bypass_mode", False))
