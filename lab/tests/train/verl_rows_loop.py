"""An agent loop whose sessions have several rows: a compacted history, and a sub-agent."""

from typing import Any

from loop import RoomsLoop  # of examples/verl_rooms


class RowsLoop(RoomsLoop):  # type: ignore[misc]
    """Every other session goes on with a summary; every fourth has a sub-agent besides."""

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> Any:
        """The rows of a session; verl takes the score of the last."""

        async def play(text: str, **says: Any) -> Any:
            chat = [{"role": "user", "content": f"{text} {row['raw_prompt'][0]['content']}"}]
            output = await super(RowsLoop, self).run(sampling_params, **{**row, "raw_prompt": chat})
            output.extra_fields |= {"reward_extra_info": {}, **says}
            return output

        session = row["session_id"]
        rows = [await play("Part 0.", agent="main")]
        if session % 2:
            rows.append(await play("Part 1, after a summary.", agent="main"))
        if session % 4 == 3:
            # It was spawned by the first turn, though it is played last.
            rows.insert(1, await play("Look around.", agent="scout", parent=[0, 0]))
        return rows
