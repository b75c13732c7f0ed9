"""The audit of a real policy: every recipe's gradient against one that many batches agree on.

One policy plays many batches. The gradient is that of the output layer, so one forward pass over
the rollouts serves every recipe: a row's gradient is ``Σ over its tokens of (e_y - p) hᵀ``, and a
recipe's is the sum of these, each times its advantage. An unbiased recipe (``returns`` against the
other trajectories) gives a reference for either objective: discounted return, and success without
discount. Batches fall into two halves, and a gradient of one half is compared with the reference
of the other. The cosine of the two halves' references says how precise the reference is.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np

from ascribe.engines.capture import decoder_blocks
from ascribe.steps.arrays import Floats, Ints
from ascribe.steps.atomic import replacing
from ascribe.steps.errors import InputError
from ascribe.steps.hints import unknown
from ascribe_lab.audit.decisions import (
    GAMMAS,
    DecisionAudit,
    measure,
    noise_share,
    open_places,
    score_decisions,
    squared_error,
    state_labels,
)
from ascribe_lab.audit.kept import Gradients, PlayedBatch, PlayedDecisions
from ascribe_lab.audit.run import Interval, Regrouped, Scored, interval, scored_recipe
from ascribe_lab.audit.scores import POOLED, Moments
from ascribe_lab.models import TransformersPolicy
from ascribe_lab.models.transformers_policy import common_prefix
from ascribe_lab.rollout import Plan, Rollout, Sample, Setup, rollout, table
from ascribe_lab.rollout.record import States

REFERENCES = {"discounted": "returns_turn", "success": "returns_turn@1"}
"""The unbiased recipe of each objective."""

POLICY_FORMS = (
    *("grpo", "returns", "returns@1", "returns_turn", "returns_turn@1"),
    *("gigpo", "gigpo_mean", "gigpo_mean_equal", "gigpo_mean_random", "gigpo_mean_one", "hgpo"),
    *("bigpo_mean", "bipace_q", "bipace_q_equal", "bipace_q_random"),
    *("sbc_exact", "sbc_ngram", "sbc", "sbc@1", "sbc_random", "sbc_one"),
)
"""What the audit of a policy scores."""

MOST_TOKENS = 256
"""The gradient is in the output rows of this many tokens, those that the policy uses most."""

# Comparing gradients.


@dataclass(frozen=True)
class PolicyScore:
    """How the gradient of a recipe compares with the reference.

    Attributes:
        update: cosine of the summed gradient of ``POOLED`` batches, corrected for the noise of the
            reference: what predicts learning best in small worlds.
        batch: mean cosine of one batch: bias and noise.
        mean: cosine of the mean over a half of the batches: bias, and what noise is left.
        variance: variance of a batch over the squared length of its mean along the reference.
    """

    update: float
    batch: Interval
    mean: float
    variance: float
    cosines: Floats = field(repr=False, compare=False)
    """Cosine of each batch."""


@dataclass(frozen=True, eq=False)
class PolicyAudit:
    """Scores by objective and recipe, and the precision of the references."""

    scores: Mapping[str, Mapping[str, PolicyScore]]
    precision: Mapping[str, float]
    """Cosine of the two halves' references, by objective."""
    batches: int
    success: float


def compare(batches: Sequence[tuple[Gradients, float]], names: Sequence[str]) -> PolicyAudit:
    """Hold every recipe's gradients against the references.

    Args:
        batches: the gradients of each batch, [recipes, D], and the success of its episodes.
        names: the recipes, those of ``REFERENCES`` among them.
    """
    gradients = np.array([pair[0] for pair in batches])
    half = np.arange(len(gradients)) % 2
    means = np.array([gradients[half == number].mean(axis=0) for number in (0, 1)])
    scores: dict[str, dict[str, PolicyScore]] = {}
    precision = {}
    for objective, reference in REFERENCES.items():
        truth = means[:, names.index(reference)]
        if not truth.any(axis=-1).all():
            raise InputError(
                f"no gradient of {objective} in half of the {len(gradients)} batches: all "
                "episodes of every task earned the same",
                hint="take easier tasks, larger groups or more batches",
            )
        precision[objective] = float(_cosines(truth[0], truth[1]))
        scores[objective] = {}
        other = truth[1 - half]  # a batch meets the reference of the other half
        unit = other / np.linalg.norm(other, axis=-1, keepdims=True)
        for number, name in enumerate(names):
            own = gradients[:, number]
            moments = Moments.of(own[:, None].astype(np.float64))
            noise = float(moments.noise[0])
            along = float((own * unit).sum(axis=-1).mean())
            square = max(float(moments.length[0]), along**2) + noise / POOLED
            cosines = _cosines(own, other).astype(np.float64)
            scores[objective][name] = PolicyScore(
                along / max(square * max(precision[objective], 1e-3), 1e-300) ** 0.5,
                interval(cosines),
                float(np.mean(_cosines(means[:, number], truth[::-1]))),
                noise / max(along**2, 1e-300),
                cosines,
            )
    success = float(np.mean([pair[1] for pair in batches]))
    return PolicyAudit(scores, precision, len(gradients), success)


def _cosines(first: Any, second: Any) -> Any:
    lengths = np.linalg.norm(first, axis=-1) * np.linalg.norm(second, axis=-1)
    return (first * second).sum(axis=-1) / np.maximum(lengths, 1e-30)  # 0 without a gradient


def policy_lines(
    found: PolicyAudit,
    decided: DecisionAudit | None = None,
    case: str = "",
) -> Iterator[dict[str, Any]]:
    """One object for every figure, as ``ascribe_lab.audit.report.json_lines`` gives them."""

    def line(place: str, metric: str, value: float, **more: Any) -> dict[str, Any]:
        figure = {"bench": "audit_policy", "unit": "1", "goal": None, "better": "higher"}
        return figure | {"case": place.lstrip("/"), "metric": metric, "value": value} | more

    policy = case or "policy"
    yield line(policy, "success", found.success)
    yield line(policy, "batches", float(found.batches))
    if decided:
        yield line(policy, "decisions", float(decided.decisions))
    for objective, by_recipe in found.scores.items():
        yield line(f"{case}/{objective}", "precision", found.precision[objective])
        for name, score in by_recipe.items():
            place = f"{case}/{objective}/{name}"
            yield line(place, "update_cosine", score.update)
            yield line(place, "batch_cosine", **asdict(score.batch))
            yield line(place, "mean_cosine", score.mean)
            yield line(place, "variance", score.variance, better="lower")
    if decided is None:
        return
    for objective, scores in decided.scores.items():
        yield line(f"{case}/{objective}", "noise_share", decided.noise[objective], better="lower")
        for name, one in scores.items():
            ends = {"low": one.low, "high": one.high}
            yield line(f"{case}/{objective}/{name}", "decision_cosine", one.cosine, **ends)


def kept_batches(
    folder: Path,
    count: int,
    play: Callable[[int], PlayedBatch],
    recipes: Mapping[str, Scored],
) -> list[tuple[Gradients, float]]:
    """The recipes' gradients on each batch of a folder, and the success of its episodes.

    Batches that are not in the folder are played, gradients that are not are computed; both are
    written there, so a run that was stopped goes on, and a new recipe plays nothing again.
    """
    folder.mkdir(parents=True, exist_ok=True)
    batches = []
    for number in range(count):
        path = folder / f"batch_{number:04}.npz"
        if not path.exists():
            play(number).save(path)
        gradients, success = kept_gradients(path, recipes)
        batches.append((np.array([gradients[name] for name in recipes]), success))
    return batches


def kept_gradients(path: Path, recipes: Mapping[str, Scored]) -> tuple[dict[str, Any], float]:
    """The recipes' gradients on a batch in a file, and its success; computed once each."""
    beside = path.with_name(path.name.replace("batch", "gradients"))
    known: dict[str, Any] = {}
    if beside.exists():
        with np.load(beside, allow_pickle=False) as stored:
            known = dict(stored)
    if missing := {name: recipe for name, recipe in recipes.items() if name not in known}:
        batch = PlayedBatch.load(path)
        known |= dict(zip(missing, batch.gradients(missing.values()), strict=True))
        known["success of episodes"] = np.array(batch.success)
        with replacing(beside) as file:
            np.savez(file, **known)
    return known, float(known["success of episodes"])


# A model folder in one of the environments.


class PolicyPlayer:
    """Plays batches with a model in an environment, and reads them for every recipe.

    Args:
        setup: the environment.
        folder: the model folder.
        plan: the episodes of one batch; batch i has the seed ``plan.seed + i``.
        work: folder for what is finished; a run that was stopped goes on there.
        names: the recipes; those of ``REFERENCES`` are added.
        layer: decoder block whose hidden state at the end of a prompt is its fingerprint.
        radius: radius of clusters of these; by default each recipe's own.
        dtype: type that the model computes in; by default float32.
        states: what recipes take for a state; decisions are compared by the environment's key.
    """

    def __init__(
        self,
        setup: Setup,
        folder: str,
        plan: Plan,
        work: Path,
        *,
        names: Sequence[str] = POLICY_FORMS,
        layer: int = -2,
        radius: float | None = None,
        dtype: str | None = None,
        states: States = "observation",
    ) -> None:
        if states not in get_args(States):
            raise unknown("states", states, get_args(States))
        self.setup, self.plan, self.work, self.states = setup, plan, work, states
        self.policy = TransformersPolicy.load(folder, dtype=dtype or "float32", batch_size=16)
        self.recipes = {
            name: with_radius(scored_recipe(name), radius)
            for name in (*names, *REFERENCES.values())
        }
        self.reader = _Reader(self.policy.model, layer, work / "tokens.npy")
        work.mkdir(parents=True, exist_ok=True)

    def play(self, number: int) -> tuple[Plan, Rollout, PlayedBatch]:
        """A batch: its plan, its episodes, and what they are scored by."""
        plan = replace(self.plan, seed=self.plan.seed + number)
        with self.setup.open_pool(plan.groups * plan.size) as pool:
            played = rollout(plan, pool, self.setup.agent, self.policy)
        fingerprints, hidden, residual, owner = self.reader.read([s.sample for s in played.steps])
        steps = replace(table(played, self.states), fingerprint=fingerprints)
        won = float(np.mean([trajectory.won for trajectory in played.trajectories]))
        return plan, played, PlayedBatch(steps, hidden, residual, owner, won)

    def gradients(self, batches: int, progress: Callable[[float], None]) -> PolicyAudit:
        """The audit by gradients.

        Args:
            batches: how many.
            progress: called with the share that is done.
        """

        def play(number: int) -> PlayedBatch:
            progress(number / batches)
            return self.play(number)[2]

        return compare(kept_batches(self.work, batches, play, self.recipes), tuple(self.recipes))

    def decisions(
        self, count: int, progress: Callable[[float], None], each: int = 64
    ) -> DecisionAudit:
        """The audit by decisions.

        Args:
            count: how many decisions, or a few more.
            progress: called with the share that is done.
            each: decisions of one batch.
        """
        parts: list[PlayedDecisions] = []
        while (done := sum(part.rows.size for part in parts)) < count:
            progress(done / count)
            path = self.work / f"decisions_{len(parts):04}.npz"
            if not path.exists():
                self._decide(len(parts), min(each, count - done)).save(path)
            parts.append(PlayedDecisions.load(path))
            if not parts[-1].rows.size:
                raise InputError("no state of a batch saw two actions: nothing to compare")
        return compare_decisions(parts, self.recipes)

    def _decide(self, number: int, count: int) -> PlayedDecisions:
        """Decisions of one batch, played on from."""
        plan, played, batch = self.play(number)
        places = open_places(played, count, np.random.default_rng([plan.seed, number]))
        found = measure(self.setup, self.policy, plan, played, places)
        starts = np.cumsum([0, *(len(t.steps) for t in played.trajectories)])
        rows = np.array([starts[i] + t for i, t in places], dtype=np.int64)
        most = max((found[place].after["success"].size for place in places), default=0)
        returns = {objective: np.full((rows.size, most), np.nan) for objective in GAMMAS}
        for objective, values in returns.items():
            for row, place in zip(values, places, strict=True):
                after = found[place].after[objective]
                row[: after.size] = after
        return PlayedDecisions(batch.table, rows, state_labels(played, places), returns)


def compare_decisions(
    parts: Sequence[PlayedDecisions], recipes: Mapping[str, Scored]
) -> DecisionAudit:
    """Compare the credit of every recipe with Q, for the decisions of several batches."""
    starts = np.cumsum([0, *(part.state.max() + 1 for part in parts)])
    state = np.concatenate([p.state + s for p, s in zip(parts, starts, strict=False)])
    credit = {
        name: np.concatenate([recipe(part.table).advantage[part.rows] for part in parts])
        for name, recipe in recipes.items()
    }
    scores, share = {}, {}
    for objective in GAMMAS:
        returns = [row[~np.isnan(row)] for part in parts for row in part.returns[objective]]
        q = np.array([row.mean() for row in returns])
        noise = np.array([squared_error(row) for row in returns])
        share[objective] = noise_share(q, noise, state)
        scores[objective] = {
            name: score_decisions(values, q, noise, state) for name, values in credit.items()
        }
    return DecisionAudit(scores, share, state.size, int(state.max()) + 1)


def with_radius(recipe: Any, radius: float | None) -> Any:
    """The recipe with this radius for clusters of given fingerprints, if it has any."""
    if isinstance(recipe, Regrouped):
        return replace(recipe, recipe=with_radius(recipe.recipe, radius))
    given = getattr(recipe, "fingerprint", None) == "given"
    return replace(recipe, radius=radius) if given and radius is not None else recipe


class _Reader:
    """Reads samples again: fingerprints of prompts, and gradients of responses.

    Args:
        model: the policy.
        layer: decoder block of the fingerprints.
        path: file for the tokens that gradients are in, chosen from the first batch.
    """

    def __init__(self, model: Any, layer: int, path: Path) -> None:
        self.model, self.layer, self.path = model, layer, path
        self.owner, blocks = decoder_blocks(model)
        self.block = layer % len(blocks) + 1

    def read(self, samples: Sequence[Sample], at_once: int = 16) -> tuple[Floats, Any, Any, Ints]:
        """Fingerprints of prompts; of response tokens hidden states, residuals and owners."""
        import torch

        kept = self._tokens(samples, at_once)
        place = torch.full((self.model.config.vocab_size,), kept.size)
        place[torch.from_numpy(kept)] = torch.arange(kept.size)
        # Equal samples are read once, and so is what neighbours in this order share.
        distinct = {(s.prompt_ids, s.response_ids): s for s in samples}
        ordered = [distinct[ids] for ids in sorted(distinct)]
        known: dict[Any, Any] = {}
        for start in range(0, len(ordered), at_once):
            part = ordered[start : start + at_once]
            states, hidden, logp = self._forward(part)
            tokens = place[torch.tensor([t for s in part for t in s.response_ids])]
            residual = -logp[:, kept].exp()
            residual += torch.nn.functional.one_hot(tokens, kept.size + 1)[:, :-1]
            counts = [len(s.response_ids) for s in part]
            rows = zip(states.double(), hidden.split(counts), residual.split(counts), strict=True)
            known.update(zip(((s.prompt_ids, s.response_ids) for s in part), rows, strict=True))
        read = [known[s.prompt_ids, s.response_ids] for s in samples]
        states, hidden, residual = zip(*read, strict=True)
        owner = np.repeat(np.arange(len(samples)), [len(s.response_ids) for s in samples])
        return (
            torch.stack(states).numpy(),
            torch.cat(hidden).numpy(),
            torch.cat(residual).numpy(),
            owner,
        )

    def _forward(self, part: Sequence[Sample]) -> tuple[Any, Any, Any]:
        """Fingerprints of prompts; hidden states and log-probabilities of response tokens."""
        import torch
        from transformers import DynamicCache

        rows = [[*sample.prompt_ids, *sample.response_ids] for sample in part]
        shared = common_prefix([sample.prompt_ids for sample in part])
        longest = max(map(len, rows))
        ids = torch.tensor([row[shared:] + [0] * (longest - len(row)) for row in rows])
        mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
        cache = DynamicCache()
        with torch.inference_mode():
            if shared:
                self.owner(input_ids=torch.tensor([rows[0][:shared]]), past_key_values=cache)
                cache.batch_repeat_interleave(len(rows))
            out = self.owner(
                input_ids=ids,
                attention_mask=mask,
                position_ids=torch.arange(shared, longest)[None].expand(len(rows), -1),
                past_key_values=cache,
                output_hidden_states=True,
            )
            last = torch.tensor([len(sample.prompt_ids) - 1 - shared for sample in part])
            states = out.hidden_states[self.block][torch.arange(len(part)), last].float()
            hidden = torch.cat(
                [
                    out.last_hidden_state[i, at : at + len(sample.response_ids)]
                    for i, (sample, at) in enumerate(zip(part, last.tolist(), strict=True))
                ]
            )
            logits = self.model.get_output_embeddings()(hidden).float()
        return states, hidden.float(), logits.log_softmax(-1)

    def _tokens(self, samples: Sequence[Sample], at_once: int) -> Ints:
        """The tokens that the policy uses most, in the first batch that was read."""
        size = self.model.config.vocab_size
        if size <= MOST_TOKENS:
            return np.arange(size)
        if not self.path.exists():
            total = sum(
                self._forward(samples[start : start + at_once])[2].exp().sum(dim=0)
                for start in range(0, len(samples), at_once)
            )
            with replacing(self.path) as file:
                np.save(file, np.sort(np.argsort(-total.numpy())[:MOST_TOKENS]))
        return np.asarray(np.load(self.path, allow_pickle=False))
