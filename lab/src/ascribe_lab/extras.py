"""The laboratory's distribution, its extras, and the entry points of others that it looks for."""

from functools import partial

from ascribe.steps import hints

DISTRIBUTION = "ascribe-lab"
"""The name of the package for pip; the module is called ``ascribe_lab``."""

ENVIRONMENT_GROUP = "ascribe_lab.envs"
"""The entry point group of environments in other packages."""

install = partial(hints.install, distribution=DISTRIBUTION)
"""The command that adds extras of the laboratory to this installation."""
