"""New weights for rollout servers of their own, through a file in memory.

verl's trainer with separate servers sends weights by NCCL and the like, which need GPUs. It takes
this module by ``actor_rollout_ref.rollout.checkpoint_engine.custom_backend_module``.
"""

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

from verl.checkpoint_engine.base import CheckpointEngine, CheckpointEngineRegistry

MEMORY = Path("/dev/shm")
POLL = 0.01
"""Seconds between two looks for the file."""


@CheckpointEngineRegistry.register("file")
class FileEngine(CheckpointEngine):  # type: ignore[misc]
    """The first rank of the trainer writes a file, and each server reads it; on one machine.

    Args:
        bucket_size: verl passes it; the file is written at once.
        is_master: whether this is the trainer's first rank.
    """

    def __init__(self, bucket_size: int, is_master: bool = False) -> None:  # noqa: ARG002
        self.is_master = is_master
        self.folder = Path()

    def prepare(self) -> str:
        """The folder for the file, which the first rank makes."""
        if not self.is_master:
            return ""
        within = MEMORY if MEMORY.is_dir() else None
        self.folder = Path(tempfile.mkdtemp(prefix="ascribe-weights-", dir=within))
        return str(self.folder)

    @classmethod
    def build_topology(
        cls, actor_wg_world_size: int, rollout_world_size: int, metadata: list[str]
    ) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
        """All are told the folder of the first rank."""
        folder = metadata[0]
        return {"folder": [folder] * actor_wg_world_size}, {"folder": [folder] * rollout_world_size}

    def init_process_group(self, folder: str) -> None:
        """Take the folder."""
        self.folder = Path(folder)

    def finalize(self) -> None:
        """Remove the folder."""
        if self.is_master:
            shutil.rmtree(self.folder, ignore_errors=True)

    async def send_weights(
        self,
        weights: Iterable[tuple[str, Any]],
        global_steps: int | None = None,  # noqa: ARG002 (verl passes it)
    ) -> None:
        """Write the weights; other ranks only take part in gathering them."""
        from safetensors.torch import save_file

        gathered = {name: tensor.clone() for name, tensor in weights}
        if self.is_master:
            save_file(gathered, self.folder / "draft")
            (self.folder / "draft").rename(self._file)

    async def receive_weights(
        self,
        global_steps: int | None = None,  # noqa: ARG002
    ) -> AsyncIterator[tuple[str, Any]]:
        """The weights, as soon as they are written."""
        from safetensors.torch import load_file

        while not self._file.exists():
            await asyncio.sleep(POLL)
        for pair in load_file(self._file).items():
            yield pair

    @property
    def _file(self) -> Path:
        return self.folder / "weights.safetensors"
