"""An adapter for a trainer that is not listed: a batch is a dict of lists.

ascribe adapters check examples.adapter:ListAdapter
"""

from ascribe.sessions import from_sequences, spread


class ListAdapter:
    """A batch is a dict of lists, with one row per episode."""

    def steps(self, batch):
        """The steps of a batch, and where their tokens are."""
        return from_sequences(
            batch["tokens"],
            batch["mask"],
            group=batch["group"],
            reward=batch["reward"],
            truncated=batch["truncated"],
        )

    def put(self, batch, places, advantages):
        """The batch with an advantage for each token."""
        return {**batch, "advantages": spread(advantages, places)}

    def example(self, episodes):
        """A batch for the check; this trainer leaves failed episodes out."""
        played = [episode for episode in episodes if not episode.failed]
        names = ("tokens", "mask", "group", "reward", "truncated")
        return {name: [getattr(episode, name) for episode in played] for name in names}

    def advantages(self, result):
        """Of what put returned, the advantages of each episode."""
        return list(result["advantages"])
