"""Episodes of a shell as mini-swe-agent's trajectory files, which ``ascribe import`` reads.

One ``*.traj.json`` per episode, in the form of its release 2 with tool calls. A response without a
command stands beside the error that the model was shown, as there. The reward, which the format
does not have, is in ``info.reward``; ``instance_id`` is the group.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ascribe_lab.rollout.run import Trajectory

FORMAT = "mini-swe-agent-1.1"


def save_trajectories(episodes: Iterable[Trajectory], folder: str | Path) -> list[Path]:
    """Write the episodes of a rollout to a folder, a file each. Returns the files."""
    paths = []
    for trajectory in episodes:
        path = Path(folder) / f"{trajectory.name.replace('/', '_')}.traj.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(record(trajectory), indent=1), encoding="utf-8")
        paths.append(path)
    return paths


def record(trajectory: Trajectory) -> dict[str, Any]:
    """One episode as mini-swe-agent would have written it."""
    steps = trajectory.steps
    status = "Submitted" if steps[-1].terminated else "LimitsExceeded"
    end = {"exit_status": status, "submission": ""}
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "You solve a task with a shell, one command at a time."},
        {"role": "user", "content": f"{trajectory.task}\n\n{steps[0].observation}".strip()},
    ]
    for number, step in enumerate(steps):
        seen = [each.observation for each in steps[number + 1 : number + 2]]
        if step.problem is not None:
            notes = {"interrupt_type": "FormatError", "model_response": step.sample.text}
            messages.append({"role": "user", "content": (seen or [""])[0], "extra": notes})
            continue
        name = f"call_{number}"
        function = {"name": "bash", "arguments": json.dumps({"command": step.action})}
        messages.append(
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": name, "type": "function", "function": function}],
                "extra": {"actions": [{"command": step.action, "tool_call_id": name}]},
            }
        )
        messages += [{"role": "tool", "tool_call_id": name, "content": text} for text in seen]
    messages.append({"role": "exit", "content": "", "extra": end})
    calls = {"instance_cost": 0.0, "api_calls": len(steps)}
    return {
        "info": {"model_stats": calls, "config": {}, **end, "reward": trajectory.reward},
        "messages": messages,
        "trajectory_format": FORMAT,
        "instance_id": trajectory.group,
    }
