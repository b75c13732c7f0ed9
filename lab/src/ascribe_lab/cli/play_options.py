"""Options that several commands share which play episodes."""

from typing import Annotated

from typer import Option


def complete_environment() -> list[str]:
    """The environments, for the shell."""
    from ascribe_lab.envs.registry import ENVIRONMENTS, plugins

    return [*ENVIRONMENTS, *plugins()]


Env = Annotated[
    str,
    Option(
        "--env",
        help="Name of an environment (see ascribe env list), or package.module:factory.",
        autocompletion=complete_environment,
    ),
]
Model = Annotated[
    str,
    Option(
        help="Who plays: a model folder, smollm2, the http:// address of an OpenAI-compatible "
        "server, random, expert, or faulty (the expert with some random actions)."
    ),
]
Backend = Annotated[str, Option(help="How to run a model folder: transformers or vllm.")]
Dtype = Annotated[
    str | None,
    Option(help="Data type to compute in, such as bfloat16. Default: that of the backend."),
]
States = Annotated[
    str,
    Option(
        help="What to write as the state: observation, or environment (the environment's own key)."
    ),
]
Context = Annotated[
    int | None, Option(help="Most tokens of a prompt and its response together.", min=2)
]
Tokenizer = Annotated[
    str | None, Option(help="For a server: folder with the tokenizer of its model.")
]
EnvSettings = Annotated[
    list[str], Option("--set", help="Set an option of the environment: --set depth=2. Repeatable.")
]
Style = Annotated[
    str,
    Option(
        help="Style of the prompts: paper (think, then act), plain (short), or choices (name an "
        "action by its letter)."
    ),
]
Seed = Annotated[int, Option(help="Random seed; the same seed gives the same tasks.", min=0)]
Temperature = Annotated[
    float,
    Option(help="Sampling temperature; 0 takes the most likely token.", min=0.0),
]
MaxTokens = Annotated[int, Option(help="Most tokens of a response.", min=1)]
MaxTurns = Annotated[
    int | None,
    Option(help="Most steps of an episode. Default: the limit of the environment.", min=1),
]
Pool = Annotated[
    str,
    Option(
        help="How environments run: processes, or serial (in this process, without time limits)."
    ),
]
Workers = Annotated[int, Option(help="Number of worker processes.", min=1)]
StepLimit = Annotated[float, Option(help="Timeout of a step, in seconds.", min=0.001)]
EpisodeLimit = Annotated[
    float | None,
    Option(help="Timeout of an episode in its environment, in seconds. Default: none."),
]
MemoryLimit = Annotated[
    float | None,
    Option(help="Memory limit of a worker, in GiB. Default: none.", min=0.001),
]
Retries = Annotated[int, Option(help="Number of retries of a failed episode.", min=0)]
