"""The rule that picks a layer (BiPACE, Appendix H), with its open readings as named choices."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ascribe.calibrate.scan import Partition, Slice

Reading = Literal["pooled", "per_group"]
"""What the paper's number of clusters counts: clusters of the whole audit set, or of a group."""


class NoHealthyLayerError(ValueError):
    """No layer gives clusters that credit could use."""


@dataclass(frozen=True)
class Rule:
    """When clusters are healthy, and which layer is best.

    The best layer has the highest probe accuracy of all whose clusters are healthy: not one giant
    cluster, not all singletons, and not fewer than 5.

    Attributes:
        fewest_clusters: fewer cannot tell the six families of the paper's tasks apart.
        counted: how clusters are counted for that. ``pooled``: with rows of all tasks thrown
            together, as the paper's counts (4 and 12 for 240 rollouts) must have been;
            ``per_group``: in the median task group, which is what training works with.
        most_singletons: clusters are all singletons if more than this share of them are.
        most_collapsed: there is one giant cluster if in more than this share of the task groups
            one cluster holds 95 % of the rows.
    """

    fewest_clusters: int = 5
    counted: Reading = "pooled"
    most_singletons: float = 0.95
    most_collapsed: float = 0.5

    def objection(self, found: Partition) -> str:
        """Why these clusters are not healthy; nothing if they are."""
        count = found.pooled_clusters if self.counted == "pooled" else found.clusters_per_group
        if found.collapsed_share > self.most_collapsed:
            return "one giant cluster"
        if found.singleton_share > self.most_singletons:
            return "all singletons"
        if count < self.fewest_clusters:
            return f"fewer than {self.fewest_clusters} clusters"
        return ""

    def healthy(self, found: Slice, radii: Sequence[float]) -> list[Partition]:
        """The partitions of a slice, at some of these radii, that nothing is wrong with."""
        at = [each for each in found.partitions if each.radius in radii]
        return [each for each in at if not self.objection(each)]

    def choose(self, slices: Sequence[Slice], radii: Sequence[float]) -> Slice | None:
        """The slice with the best probe of those that are healthy at one of these radii.

        Equal probes: the one with fewer singletons at its best radius, then the later layer.
        Nothing if no slice is healthy.
        """

        def merit(found: Slice) -> tuple[float, float, int]:
            fewest = min(each.singleton_share for each in self.healthy(found, radii))
            return found.probe.accuracy, -fewest, found.layer

        qualified = [each for each in slices if self.healthy(each, radii)]
        return max(qualified, key=merit, default=None)

    def refusal(self, slices: Sequence[Slice]) -> NoHealthyLayerError:
        """Why no slice could be chosen, and what to do."""
        every = [each for found in slices for each in found.partitions]
        reasons = Counter(self.objection(each) for each in every)
        (reason, count), *_ = reasons.most_common(1)
        radii = [each.radius for each in slices[0].partitions]
        if reasons["all singletons"] == len(every):
            advice = f"no two states are alike; try radii above {max(radii):g}"
        elif reasons["one giant cluster"] == len(every):
            advice = "the states look all the same to the model; is the text column the right one?"
        else:
            advice = "try other layers, or radii between those of the scan"
        return NoHealthyLayerError(
            f"no layer gives healthy clusters at radii from {min(radii):g} to {max(radii):g}: "
            f"{reason} in {count} of {len(every)} cases; {advice}"
        )
