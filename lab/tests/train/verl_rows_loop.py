"""An agent loop whose episodes have one row or two, as those of a compacted history."""

from typing import Any

from loop import RoomsLoop  # of examples/verl_rooms


class RowsLoop(RoomsLoop):  # type: ignore[misc]
    """Every other episode has a second part, with a prompt of its own."""

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> Any:
        """The rows of an episode."""
        outputs = []
        for part in range(1 + row["session_id"] % 2):
            text = f"Part {part}. {row['raw_prompt'][0]['content']}"
            chat = {**row, "raw_prompt": [{"role": "user", "content": text}]}
            outputs.append(await super().run(sampling_params, **chat))
            outputs[-1].extra_fields["reward_extra_info"] = {}
        return outputs
