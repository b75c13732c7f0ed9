"""A tool for verl's ToolAgentLoop, a reward function, and a dataset: visit room 2 in four moves.

python examples/verl_rooms/rooms.py data     # writes data/train.parquet
"""

import re
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from verl.tools.function_tool import function_tool

TASK = "Visit room 2 as often as you can."


@function_tool
def move(room: int) -> tuple[str, float]:
    """Go to a room.

    Args:
        room: its number.
    """
    return f"You are in room {room}.", 0.25 * (room == 2)


def compute_score(
    data_source: str,  # noqa: ARG001 (verl passes it)
    solution_str: str,
    ground_truth: str,
    extra_info: Any = None,  # noqa: ARG001
) -> float:
    """The share of four moves that led to the room."""
    visits = re.findall(r"You are in room (\d+)", solution_str)
    return min(1.0, visits.count(ground_truth) / 4)


def write_data(folder: Path, agents: list[str], rows: int = 64) -> Path:
    """A dataset of verl's; the agent loops take turns, four rows each."""
    dataset = [
        {
            "data_source": "rooms",
            "prompt": [{"role": "user", "content": f"{TASK} You are in room {number % 2}."}],
            "reward_model": {"style": "rule", "ground_truth": "2"},
            "extra_info": {"index": number},
            "agent_name": agents[number // 4 % len(agents)],
        }
        for number in range(rows)
    ]
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(dataset), folder / "train.parquet")
    return folder / "train.parquet"


if __name__ == "__main__":
    print(write_data(Path(sys.argv[1]), sys.argv[2:] or ["tool_agent"]))
