"""A small git repository with failing tests: find the bug in a real shell, mend it, submit.

**This environment runs commands that a model writes**, and Python files that it wrote. It runs them
in namespaces of their own, without a network, without the machine's files and under limits
(``sandbox``), and refuses to be made where the system does not allow that. ``tasks`` writes the
repositories, ``game`` plays them; ``docs/environments/external.md`` has the protocol.
"""

from ascribe_lab.envs.repository.game import Repository, WorkingCopy
from ascribe_lab.envs.repository.sandbox import SandboxError, run
from ascribe_lab.envs.repository.tasks import Project, make_project

__all__ = ["Project", "Repository", "SandboxError", "WorkingCopy", "make_project", "run"]
