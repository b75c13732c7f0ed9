"""The commands that the laboratory adds to ``ascribe``, by the entry point ``ascribe.commands``."""

COMMANDS = {
    "audit": (
        "ascribe_lab.cli.audit:audit",
        "Score recipes where the truth is known: in small worlds, or for your own policy.",
    ),
    "calibrate": (
        "ascribe_lab.cli.calibrate:calibrate",
        "Choose the layer, the pooling and the radius of a model's fingerprints for BiPACE.",
    ),
    "rollout": (
        "ascribe_lab.cli.rollout:rollout",
        "Play groups of episodes and write them to a file that check and credit read.",
    ),
    "eval": (
        "ascribe_lab.cli.rollout:evaluate",
        "Print how many tasks are solved, by family, with a 95 % interval.",
    ),
    "replay": (
        "ascribe_lab.cli.replay:replay",
        "Play on from both sides of each fork of a rollout, and print what it is worth.",
    ),
    "warmup": (
        "ascribe_lab.cli.warmup:warmup",
        "Train a model for a few updates on an expert's responses, so that its actions are valid.",
    ),
    "train": (
        "ascribe_lab.cli.train:train",
        "Train by a config; print every value and who set it.",
    ),
    "env": (
        "ascribe_lab.cli.env:env",
        "Environments: which there are, and whether one keeps the contract.",
    ),
    "pivots": (
        "ascribe_lab.cli.pivots:pivots",
        "PivotRL: from expert traces to the turns that are worth training on.",
    ),
}
"""Each command: where it is, and the first sentence of its help."""
