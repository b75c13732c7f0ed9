"""What verl loads in every process that imports it, by the entry point ``verl.plugins``.

Three names become known: the estimator ``ascribe`` (``algorithm.adv_estimator``), the trainer
``ascribe`` (``trainer.v1.trainer_mode``), and an engine that can hand out hidden states; verl's
agent loop records its tool calls. None of them does anything in runs that do not name Ascribe.

verl runs in a dozen processes, and most need none of this. So each part is loaded when verl loads
the module that it adds to, and not before.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

PARTS = {
    "verl.trainer.ppo.v1": "ascribe.engines.verl.trainer",
    "verl.workers.engine": "ascribe.engines.verl.engine",
    "verl.experimental.agent_loop.tool_agent_loop": "ascribe.engines.verl.tools",
}
"""Our part by the module of verl's that it adds to."""


class ImportHook(MetaPathFinder):
    """Loads a part of ours right after the module of verl's that it adds to.

    Args:
        parts: what is added, by the module's name.
    """

    def __init__(self, parts: dict[str, str]) -> None:
        self.waiting = dict(parts)

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,  # noqa: ARG002 (part of the protocol)
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        """The module as others find it, with our part after it."""
        part = self.waiting.pop(fullname, None)
        if part is None:
            return None
        spec = find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Then(spec.loader, part)
        return spec


class _Then(Loader):
    """A loader that loads something else afterwards."""

    def __init__(self, loader: Loader, part: str) -> None:
        self.loader, self.part = loader, part

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self.loader.exec_module(module)
        import_module(self.part)


def install(parts: dict[str, str]) -> None:
    """Load these parts after the modules of verl's that they add to, now or later."""
    later = {name: part for name, part in parts.items() if name not in sys.modules}
    sys.meta_path.insert(0, ImportHook(later))
    for name in parts.keys() - later.keys():
        import_module(parts[name])


install(PARTS)
