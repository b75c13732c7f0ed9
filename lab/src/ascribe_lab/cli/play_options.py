"""Options that several commands share which play episodes."""

from typing import Annotated

from typer import Option


def complete_environment(incomplete: str) -> list[str]:
    """The environments that begin like this, for the shell."""
    from ascribe_lab.envs.registry import ENVIRONMENTS, plugins

    return [name for name in (*ENVIRONMENTS, *plugins()) if name.startswith(incomplete)]


Env = Annotated[
    str,
    Option(
        "--env",
        help="An environment (ascribe env list), or package.module:factory.",
        autocompletion=complete_environment,
    ),
]
Model = Annotated[
    str,
    Option(
        help="A model folder, smollm2, http://... of an OpenAI-compatible server, random, expert "
        "or faulty (the expert with slips)."
    ),
]
Backend = Annotated[
    str, Option(help="Who runs a model folder: transformers, or vllm in this process.")
]
Dtype = Annotated[
    str | None, Option(help="Type to compute in, such as bfloat16. Default: the backend's.")
]
States = Annotated[str, Option(help="The column state: observation, or environment (its own key).")]
Context = Annotated[
    int | None, Option(help="Tokens that prompt and response may have together.", min=2)
]
Tokenizer = Annotated[
    str | None, Option(help="For a server: the folder with its model's tokenizer.")
]
EnvSettings = Annotated[
    list[str], Option("--set", help="An option of the environment: --set depth=2. Repeatable.")
]
Style = Annotated[
    str, Option(help="Prompts: paper (think, then act), plain (short) or choices (a letter each).")
]
Seed = Annotated[int, Option(help="The same seed gives the same tasks.", min=0)]
Temperature = Annotated[float, Option(help="0 takes the likeliest token.", min=0.0)]
MaxTokens = Annotated[int, Option(help="Tokens that a response may have.", min=1)]
MaxTurns = Annotated[
    int | None, Option(help="Decisions of an episode. Default: the environment's limit.", min=1)
]
Pool = Annotated[
    str, Option(help="Where environments run: processes, or serial (here, no limits).")
]
Workers = Annotated[int, Option(help="Processes of the pool.", min=1)]
StepLimit = Annotated[float, Option(help="Seconds that one step may take.", min=0.001)]
EpisodeLimit = Annotated[
    float | None, Option(help="Seconds that an episode may spend in its environment.")
]
MemoryLimit = Annotated[
    float | None,
    Option(help="GiB of data that a worker may have. Default: the machine's.", min=0.001),
]
Retries = Annotated[int, Option(help="How often a failed episode is tried again.", min=0)]
