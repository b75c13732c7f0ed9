"""The commands that the laboratory adds to ``ascribe``, by the entry point ``ascribe.commands``."""

COMMANDS = {
    "audit": (
        "ascribe_lab.cli.audit:audit",
        "Compare recipes with exact advantages in small worlds, or on your own policy.",
    ),
    "calibrate": (
        "ascribe_lab.cli.calibrate:calibrate",
        "Choose the layer, the pooling and the radius of fingerprints for a model.",
    ),
    "rollout": (
        "ascribe_lab.cli.rollout:rollout",
        "Play several episodes of each task, and write them to a file of rollouts.",
    ),
    "eval": (
        "ascribe_lab.cli.rollout:evaluate",
        "Play each task of a list, and print the success rate with a 95 % interval.",
    ),
    "replay": (
        "ascribe_lab.cli.replay:replay",
        "Measure decisions of a rollout: play on from both actions, and compare the results.",
    ),
    "warmup": (
        "ascribe_lab.cli.warmup:warmup",
        "Train a model on an expert's responses until its actions are valid.",
    ),
    "train": (
        "ascribe_lab.cli.train:train",
        "Train a model with a config file.",
    ),
    "env": (
        "ascribe_lab.cli.env:env",
        "List the environments and their options, or check one of your own.",
    ),
    "pivots": (
        "ascribe_lab.cli.pivots:pivots",
        "Find the turns of expert traces that are worth training on (PivotRL).",
    ),
}
"""Each command: where it is, and the first sentence of its help."""
