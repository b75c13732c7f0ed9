"""The audit of a real policy: every recipe's gradient against one that many batches agree on.

One policy plays many batches. The gradient is that of the output layer, so one forward pass over
the rollouts serves every recipe: a row's gradient is ``Σ over its tokens of (e_y - p) hᵀ``, and a
recipe's is the sum of these, each times its advantage. An unbiased recipe (``returns`` against the
other trajectories) gives a reference for either objective: discounted return, and success without
discount. Batches fall into two halves, and a gradient of one half is compared with the reference
of the other. The cosine of the two halves' references says how precise the reference is.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ascribe.audit.decisions import (
    GAMMAS,
    DecisionScore,
    measure,
    open_places,
    score_decisions,
    squared_error,
    state_labels,
)
from ascribe.audit.run import Interval, Regrouped, Scored, interval, scored_recipe
from ascribe.audit.scores import POOLED, Moments
from ascribe.fingerprints.capture import decoder_blocks
from ascribe.models import TransformersPolicy
from ascribe.rollout import Plan, Rollout, Sample, Setup, rollout, table
from ascribe.steps.arrays import Floats, Ints
from ascribe.steps.atomic import replacing
from ascribe.steps.table import StepTable

REFERENCES = {"discounted": "returns_turn", "success": "returns_turn_undiscounted"}
"""The unbiased recipe of each objective."""

POLICY_FORMS = (
    *("grpo", "returns", "returns_undiscounted", "returns_turn", "returns_turn_undiscounted"),
    *("gigpo", "gigpo_mean", "gigpo_mean_equal", "gigpo_mean_random", "gigpo_mean_one", "hgpo"),
    *("bigpo_mean", "bipace_q", "bipace_q_equal", "bipace_q_random"),
    *("sbc_exact", "sbc_ngram", "sbc", "sbc_undiscounted", "sbc_random", "sbc_one"),
)
"""What the audit of a policy scores."""

MOST_TOKENS = 256
"""The gradient is in the output rows of this many tokens, those that the policy uses most."""

Gradients = npt.NDArray[np.float32]
"""The gradient of each recipe, [recipes, D]."""


def row_gradients(hidden: Any, logits: Any, tokens: Any, owner: Ints, rows: int) -> Any:
    """Gradient of each row's log-probability in the weights of the output layer, [rows, V x H].

    Args:
        hidden: what the output layer reads at each token, [T, H]; a torch tensor, as all but owner.
        logits: of the tokens that the gradient is in, [T, V], less the log of the sum over all.
        tokens: place of the sampled token among these, or V if it is another, [T].
        owner: row of each token, in ascending order, [T].
        rows: number of rows.
    """
    import torch

    size = logits.shape[1]
    residual = -logits.exp()
    residual += torch.nn.functional.one_hot(tokens, size + 1)[:, :size]
    out = torch.zeros(rows, size * hidden.shape[1])
    bounds = np.searchsorted(owner, np.arange(rows + 1)).tolist()
    for row, (start, end) in enumerate(pairwise(bounds)):
        out[row] = (residual[start:end].T @ hidden[start:end]).ravel()
    return out


def recipe_gradients(table: StepTable, recipes: Iterable[Scored], rows: Any) -> Gradients:
    """The gradient of every recipe from the gradients of the table's rows."""
    advantage = np.array([recipe(table).advantage for recipe in recipes], dtype=np.float32)
    return np.asarray(advantage @ rows.numpy() / len(set(table.trajectory.codes.tolist())))


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
            raise ValueError(
                f"no gradient of {objective} in half of the {len(gradients)} batches: all episodes "
                "of every task earned the same; take easier tasks, larger groups or more batches"
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
            scores[objective][name] = PolicyScore(
                along / max(square * max(precision[objective], 1e-3), 1e-300) ** 0.5,
                interval(_cosines(own, other).astype(np.float64)),
                float(np.mean(_cosines(means[:, number], truth[::-1]))),
                noise / max(along**2, 1e-300),
            )
    success = float(np.mean([pair[1] for pair in batches]))
    return PolicyAudit(scores, precision, len(gradients), success)


def _cosines(first: Any, second: Any) -> Any:
    lengths = np.linalg.norm(first, axis=-1) * np.linalg.norm(second, axis=-1)
    return (first * second).sum(axis=-1) / np.maximum(lengths, 1e-300)


def policy_lines(
    found: PolicyAudit,
    decided: Mapping[str, Mapping[str, DecisionScore]] | None = None,
    case: str = "",
) -> Iterator[dict[str, Any]]:
    """One object for every figure, as ``ascribe.audit.report.json_lines`` gives them."""
    line = {"bench": "audit_policy", "unit": "1", "goal": None, "better": "higher"}
    yield line | {"case": case or "policy", "metric": "success", "value": found.success}
    for objective, by_recipe in found.scores.items():
        place = f"{case}/{objective}".lstrip("/")
        yield line | {"case": place, "metric": "precision", "value": found.precision[objective]}
        for name, score in by_recipe.items():
            of_recipe = line | {"case": f"{place}/{name}"}
            yield of_recipe | {"metric": "update_cosine", "value": score.update}
            yield of_recipe | {"metric": "batch_cosine"} | asdict(score.batch)
            yield of_recipe | {"metric": "mean_cosine", "value": score.mean}
            yield of_recipe | {"metric": "variance", "value": score.variance, "better": "lower"}
    for objective, scores in (decided or {}).items():
        for name, one in scores.items():
            ends = {"value": one.cosine, "low": one.low, "high": one.high}
            place = f"{case}/{objective}/{name}".lstrip("/")
            yield line | {"case": place, "metric": "decision_cosine"} | ends


def kept_batches(
    folder: Path, count: int, play: Callable[[int], tuple[Gradients, float]]
) -> list[tuple[Gradients, float]]:
    """The batches in a folder, playing and writing those that are not there yet."""
    folder.mkdir(parents=True, exist_ok=True)
    batches = []
    for number in range(count):
        path = folder / f"batch_{number:04}.npz"
        if not path.exists():
            gradients, success = play(number)
            with replacing(path) as file:
                np.savez(file, gradients=gradients, success=success)
        with np.load(path, allow_pickle=False) as stored:
            batches.append((stored["gradients"], float(stored["success"])))
    return batches


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
    ) -> None:
        self.setup, self.plan, self.work = setup, plan, work
        self.policy = TransformersPolicy.load(folder)
        self.names = tuple(dict.fromkeys((*names, *REFERENCES.values())))
        self.recipes = [with_radius(scored_recipe(name), radius) for name in self.names]
        self.reader = _Reader(self.policy.model, layer, work / "tokens.npy")
        work.mkdir(parents=True, exist_ok=True)

    def play(self, number: int) -> tuple[Plan, Rollout, StepTable, Any]:
        """A batch: its plan, its episodes, their table, and the gradients of its rows."""
        plan = replace(self.plan, seed=self.plan.seed + number)
        with self.setup.open_pool(plan.groups * plan.size) as pool:
            played = rollout(plan, pool, self.setup.agent, self.policy)
        rows, fingerprints = self.reader.read([step.sample for step in played.steps])
        return plan, played, replace(table(played), fingerprint=fingerprints), rows

    def gradients(self, batches: int, progress: Callable[[float], None]) -> PolicyAudit:
        """The audit by gradients.

        Args:
            batches: how many.
            progress: called with the share that is done.
        """

        def play(number: int) -> tuple[Gradients, float]:
            progress(number / batches)
            _, played, steps, rows = self.play(number)
            won = float(np.mean([trajectory.won for trajectory in played.trajectories]))
            return recipe_gradients(steps, self.recipes, rows), won

        return compare(kept_batches(self.work, batches, play), self.names)

    def decisions(
        self, count: int, progress: Callable[[float], None], each: int = 64
    ) -> dict[str, dict[str, DecisionScore]]:
        """The audit by decisions: scores by objective and recipe.

        Args:
            count: how many decisions, or a few more.
            progress: called with the share that is done.
            each: decisions of one batch.
        """
        parts: list[dict[str, Any]] = []
        while (done := sum(part["state"].size for part in parts)) < count:
            progress(done / count)
            path = self.work / f"decisions_{len(parts):04}.npz"
            if not path.exists():
                with replacing(path) as file:
                    np.savez(file, **self._decide(len(parts), min(each, count - done)))
            with np.load(path, allow_pickle=False) as stored:
                parts.append(dict(stored))
            if not parts[-1]["state"].size:
                raise ValueError("no state of a batch saw two actions: nothing to compare")
        return joined_scores(parts, self.names)

    def _decide(self, number: int, count: int) -> dict[str, Any]:
        """Decisions of one batch: the credit of every recipe, Q and its noise, and states."""
        plan, played, steps, _ = self.play(number)
        places = open_places(played, count, np.random.default_rng([plan.seed, number]))
        found = measure(self.setup, self.policy, plan, played, places)
        starts = np.cumsum([0, *(len(t.steps) for t in played.trajectories)])
        rows = np.array([starts[i] + t for i, t in places], dtype=np.int64)
        arrays: dict[str, Any] = {"state": state_labels(played, places)}
        arrays["credit"] = np.array([recipe(steps).advantage[rows] for recipe in self.recipes])
        for objective in GAMMAS:
            returns = [found[place].after[objective] for place in places]
            arrays[objective] = np.array([values.mean() for values in returns])
            arrays[f"{objective} noise"] = np.array([squared_error(v) for v in returns])
        return arrays


def joined_scores(
    parts: Sequence[Mapping[str, Any]], names: Sequence[str]
) -> dict[str, dict[str, DecisionScore]]:
    """Scores by objective and recipe from the decisions of several batches."""
    starts = np.cumsum([0, *(part["state"].max() + 1 for part in parts)])
    state = np.concatenate([p["state"] + s for p, s in zip(parts, starts, strict=False)])
    joined = {k: np.concatenate([p[k] for p in parts], axis=-1) for k in parts[0]}
    scores = {}
    for objective in GAMMAS:
        truth = (joined[objective], joined[f"{objective} noise"], state)
        by_recipe = zip(names, joined["credit"], strict=True)
        scores[objective] = {name: score_decisions(credit, *truth) for name, credit in by_recipe}
    return scores


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

    def read(self, samples: Sequence[Sample], at_once: int = 16) -> tuple[Any, Floats]:
        """The gradient of each sample's log-probability, and the fingerprint of its prompt."""
        import torch

        gradients, fingerprints = [], []
        kept = self._tokens(samples, at_once)
        place = torch.full((self.model.config.vocab_size,), kept.size)
        place[torch.from_numpy(kept)] = torch.arange(kept.size)
        for start in range(0, len(samples), at_once):
            part = samples[start : start + at_once]
            states, hidden, logp = self._forward(part)
            owner = np.repeat(np.arange(len(part)), [len(s.response_ids) for s in part])
            tokens = place[torch.tensor([t for s in part for t in s.response_ids])]
            gradients.append(row_gradients(hidden, logp[:, kept], tokens, owner, len(part)))
            fingerprints.append(states.double().numpy())
        return torch.cat(gradients), np.concatenate(fingerprints)

    def _forward(self, part: Sequence[Sample]) -> tuple[Any, Any, Any]:
        """Fingerprints of prompts; hidden states and log-probabilities of response tokens."""
        import torch

        rows = [[*sample.prompt_ids, *sample.response_ids] for sample in part]
        longest = max(map(len, rows))
        ids = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
        mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
        with torch.inference_mode():
            out = self.owner(
                input_ids=ids, attention_mask=mask, use_cache=False, output_hidden_states=True
            )
            last = torch.tensor([len(sample.prompt_ids) - 1 for sample in part])
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
