"""One game at a time on TextWorld's engine for PDDL games, and ALFWorld's expert.

Imports TextWorld: import this late.
"""

import random
import re
import sys
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import fast_downward
from alfworld.agents.expert import HandCodedAgentFailed, HandCodedAgentTimeout, HandCodedTWAgent
from alfworld.agents.utils.misc import Demangler
from mementos.core import _memento_cache
from textworld.envs.pddl import textgen
from textworld.envs.pddl.logic import GameLogic, PddlState
from textworld.generator.game import EntityInfo
from textworld.logic import Rule, Signature

from ascribe_lab.envs.alfworld.games import PARAMETERS_FILE, GameFileError, Rules, evaluate, parse

PROPERTIES = {
    "isclean": "clean",
    "iscool": "cool",
    "ishot": "hot",
    "issliced": "sliced",
    "istoggled": "on",
}
"""The properties of a thing that ``examine`` shows."""

# Every engine has a copy of the library to itself, for its state is global. A copy that is unloaded
# makes the process crash when the next one is loaded, so copies are reused.
_free: list[Any] = []


class Fact(NamedTuple):
    """A fact in the words of the game."""

    name: str
    names: tuple[str, ...]


class Engine:
    """TextWorld's state, grammar and rules of one game, and its admissible commands.

    Its texts are those of TextWorld's own ``PddlEnv``, byte for byte; it only asks less often.
    """

    def __init__(self) -> None:
        self._library = _free.pop() if _free else fast_downward.load_lib()
        self._logic: Any = None
        self._state: Any = None
        self._infos: dict[str, Any] = {}
        self._actions: dict[str, Any] = {}
        self._fixed: set[str] = set()
        self._commands: dict[int, str] = {}
        self._rules: Rules | None = None

    def start(self, rules: Rules) -> str:
        """Begin a game. Returns the first observation.

        Raises:
            GameFileError: if TextWorld cannot load it, or if it holds code.
        """
        try:
            with faster():
                if rules != self._rules:
                    self._load(rules)
                self._state = PddlState(self._library, rules.problem, self._logic)
                if rules != self._rules:
                    self._infos = _names(self._state.facts)
                    self._fixed = _fixed_templates(self._logic, self._state.task)
                    self._rules = rules
                self._look()
                return self._derive("#intro#")
        except GameFileError:
            raise
        except (Exception, SystemExit) as error:
            # The parsers raise all sorts of errors, and the translator leaves by SystemExit.
            raise GameFileError(f"TextWorld cannot load the game: {error!r}") from error

    def _load(self, rules: Rules) -> None:
        """Read the grammar of another game."""
        forget()
        self._rules, self._commands = None, {}
        self._logic = GameLogic(domain=rules.domain, grammar=rules.grammar)
        _refuse_code(self._logic)

    def do(self, command: str) -> str:
        """Carry out an admissible command. Returns the feedback."""
        with faster():
            action = self._actions[command]
            self._state.apply(action)
            feedback = self._derive(action.feedback_rule, action)
            self._look()
            return feedback

    def close(self) -> None:
        """Pass the library on to the next engine. This one must not be used any more."""
        _free.append(self._library)

    @property
    def commands(self) -> list[str]:
        """What can be done now, sorted."""
        return sorted(self._actions)

    @property
    def won(self) -> bool:
        """Whether the goal is reached."""
        return bool(self._state.check_goal())

    def facts(self, *predicates: tuple[str, ...]) -> list[Fact]:
        """The facts of some predicates, each given with the types of its arguments, sorted."""
        facts = [
            Fact(name, tuple(self._infos[variable.name].name.strip() for variable in one.arguments))
            for name, *types in predicates
            for one in self._state.facts_with_signature(Signature(name, types))
        ]
        return sorted(facts)

    def view(self) -> str:
        """What the agent could see from where it stands, whatever it did last.

        The receptacles here and whether they are closed, what lies in the open ones, what is
        carried, and how these things are (clean, cool, hot, sliced, on).
        """

        def names(predicate: str, *types: str) -> list[tuple[str, ...]]:
            return [fact.names for fact in self.facts((predicate, *types))]

        position = {location for _, location in names("atlocation", "agent", "location")}
        receptacles = names("receptacleatlocation", "receptacle", "location")
        closed = set(names("openable", "receptacle")) - set(names("opened", "receptacle"))
        contents: dict[str, list[str]] = defaultdict(list)
        for thing, receptacle in names("inreceptacle", "object", "receptacle"):
            contents[receptacle].append(thing)
        properties: dict[str, list[str]] = defaultdict(list)
        for fact in self.facts(*((name, "object") for name in PROPERTIES)):
            properties[fact.names[0]].append(PROPERTIES[fact.name])

        def shown(things: Iterable[str]) -> str:
            return ", ".join(" ".join([*properties[one], one]) for one in things) or "nothing"

        seen = [
            f"{name}: {'closed' if (name,) in closed else shown(contents[name])}"
            for name, location in receptacles
            if location in position
        ]
        carried = shown(thing for _, thing in names("holds", "agent", "object"))
        return "; ".join([*seen, f"carried: {carried}"])

    def _look(self) -> None:
        """Find out what can be done now."""
        self._actions = {}
        for action in self._state.all_applicable_actions():
            command = self._commands.get(action.id)
            if command is None:
                command = self._derive(action.command_template, action)
                command = command.format(**{name: one.name for name, one in self._infos.items()})
                if action.command_template in self._fixed:
                    self._commands[action.id] = command
            # Of commands that read alike the first one counts, as in TextWorld.
            self._actions.setdefault(command, action)

    def _derive(self, text: str, action: Any = None) -> str:
        """A text of the grammar about an action, in the words of the game."""
        mapping = {} if action is None else action.mapping
        context = {
            "state": self._state,
            "facts": (),
            "variables": {hole.name: self._infos[of.name] for hole, of in mapping.items()},
            "mapping": mapping,
            "entity_infos": self._infos,
        }
        return str(self._logic.grammar.derive(text, context))


def _refuse_code(logic: Any) -> None:
    """Parse every expression of a grammar; raises GameFileError if one is more than words."""
    symbols = [one for rules in logic.grammar._rules.values() for rule in rules for one in rule.rhs]
    for action in logic.actions.values():
        for text in (action.template, action.feedback_rule):
            symbols += textgen._parse_and_convert(text, rule_name="symbols")
    for symbol in symbols:
        while isinstance(symbol, (textgen.ConditionalSymbol, textgen.ListSymbol)):
            conditional = isinstance(symbol, textgen.ConditionalSymbol)
            symbol = symbol.expression if conditional else symbol.symbol  # noqa: PLW2901
        if isinstance(symbol, textgen.EvalSymbol):
            parse(str(symbol.expression))


def _names(facts: Iterable[Any]) -> dict[str, Any]:
    """Everything in a game, under the names that ALFWorld gives: ``potato 1``."""
    types = {variable.name: variable.type for fact in facts for variable in fact.arguments}
    infos = {name: EntityInfo(name, types[name]) for name in sorted(types)}
    called = Demangler(game_infos=infos)
    for name, info in infos.items():
        info.name = called.demangle_alfred_name(name)
        info.definite, info.indefinite = "the", "a"
    return infos


def _fixed_templates(logic: Any, task: Any) -> set[str]:
    """The templates of commands that ask about nothing an action can change.

    The command of such an action reads the same all through a game, so it is derived once.
    """
    changing = {effect.literal.predicate for action in task.actions for effect in action.effects}
    changing |= {axiom.name for axiom in task.axioms}
    return {
        action.template
        for action in logic.actions.values()
        if all(
            (asked := _asks(symbol)) is not None and not asked & changing
            for symbol in textgen._parse_and_convert(action.template, rule_name="symbols")
        )
    }


def _asks(symbol: Any) -> set[str] | None:
    """The predicates that a symbol asks about; None if that is not certain."""
    if isinstance(symbol, textgen.TerminalSymbol):
        return set()
    if isinstance(symbol, textgen.ListSymbol):
        return _asks(symbol.symbol)
    if isinstance(symbol, textgen.ConditionalSymbol):
        if not isinstance(symbol.expression, textgen.EvalSymbol):
            return None
        query = Rule.parse_conjunctive_query(symbol.given).preconditions if symbol.given else ()
        return {re.sub("^not_", "", predicate.name) for predicate in query}
    return None


# The expert.

FAILURES = (HandCodedAgentFailed, HandCodedAgentTimeout, IndexError, KeyError)
"""What the expert raises when it does not know what to do."""

FACTS = (
    ("holds", "agent", "object"),
    ("inreceptacle", "object", "receptacle"),
    ("wasinreceptacle", "object", "receptacle"),
    ("isclean", "object"),
    ("iscool", "object"),
    ("ishot", "object"),
)
"""The facts that the expert reads."""


class Expert:
    """Says what to do next, from what was done and seen so far.

    It draws from a state of its own, so that it neither moves the generator of the process nor
    depends on it. It can be copied and pickled.

    Args:
        game: the path of the game file; the task is read from the file beside it.
        seed: for the choices between things of one kind.
        observation: the first of the episode.
    """

    def __init__(self, game: Path, seed: int, observation: str) -> None:
        if not game.with_name(PARAMETERS_FILE).is_file():
            raise GameFileError(f"the expert needs a {PARAMETERS_FILE} beside {game}")
        self._agent = HandCodedTWAgent(max_steps=200)
        self._agent.reset(str(game))
        self._agent.observe(observation)
        self._random_state = random.Random(seed).getstate()

    def advise(self, engine: Engine, observation: str, command: str) -> str | None:
        """What to do after a command that led to an observation; None if it does not know."""
        commands = engine.commands
        state = {
            "feedback": observation,
            "admissible_commands": commands,
            "facts": engine.facts(*FACTS),
        }
        outside = random.getstate()
        random.setstate(self._random_state)
        try:
            advice = self._agent.act(state, 0, engine.won, _as_put(command))
        except FAILURES:
            return None
        finally:
            self._random_state = random.getstate()
            random.setstate(outside)
        return advice if advice in commands else "look"


def _as_put(command: str) -> str:
    """``move X to Y`` as ``put X in/on Y``.

    The expert of 0.4.2 says ``move`` but still waits for ``put`` to note that its hands are empty.
    """
    verb, _, rest = command.partition(" ")
    thing, to, place = rest.partition(" to ")
    return f"put {thing} in/on {place}" if verb == "move" and to else command


# TextWorld parses the same few texts again and again, and copies deeply what is never changed. A
# reset translates the game from PDDL twice, the second time for a planner that is not used here.
# Inside ``faster()`` some functions are replaced by others that give equal results:
#
# - ``textgen._parse_and_convert`` and ``Rule.parse_conjunctive_query`` cache what they parsed.
#   Symbols are returned as copies, for TextWorld writes into them. A query is only read.
# - ``textgen.copy_context`` copies dictionaries, not the names and variables in them, which are
#   only read.
# - ``EvalSymbol.derive`` reads expressions of the grammar instead of evaluating them as Python.
# - ``fast_downward.pddl2sas`` caches the last games, leaves the planner's translation empty, and
#   restores ``sys.argv``.

PARSED_TEXTS = 4_096
GAMES_KEPT = 16
FACTS_KEPT = 50_000

# The replacements belong to the whole process, and the translator borrows sys.stdout and sys.argv.
_lock = threading.RLock()

_parsed = lru_cache(maxsize=PARSED_TEXTS)(textgen._parse_and_convert)
_translate = fast_downward.pddl2sas


def _parse_once(text: str, *, rule_name: str, **_: Any) -> Any:
    return deepcopy(_parsed(text, rule_name=rule_name))


def _copy_flat(context: dict[str, Any]) -> dict[str, Any]:
    copies = {name: dict(context[name]) for name in ("variables", "mapping")}
    return {**context, **copies}


def _derive_safely(symbol: Any, context: dict[str, Any] | None = None) -> list[Any]:
    things = (context or symbol.context)["variables"]
    return [textgen.TerminalSymbol(evaluate(parse(symbol.expression), things))]


@lru_cache(maxsize=GAMES_KEPT)
def _translated(domain: str, problem: str) -> Any:
    argv = sys.argv
    try:
        return _translate(domain, problem)
    finally:
        sys.argv = argv


def _translate_once(domain: str, problem: str, *, optimize: bool = False, **_: Any) -> Any:
    task, text = _translated(domain, problem)
    return task, "" if optimize else text


_query_once = lru_cache(maxsize=PARSED_TEXTS)(Rule.parse_conjunctive_query)

REPLACED: tuple[tuple[Any, str, Any], ...] = (
    (textgen, "_parse_and_convert", _parse_once),
    (textgen, "copy_context", _copy_flat),
    (textgen.EvalSymbol, "derive", _derive_safely),
    (Rule, "parse_conjunctive_query", staticmethod(_query_once)),
    (fast_downward, "pddl2sas", _translate_once),
)
"""The owner, the attribute's name, and its replacement inside ``faster()``."""


@contextmanager
def faster() -> Iterator[None]:
    """TextWorld as it is, but faster. One thread at a time; may be nested."""
    with _lock:
        originals = [vars(place)[name] for place, name, _ in REPLACED]
        for place, name, new in REPLACED:
            setattr(place, name, new)
        try:
            yield
        finally:
            for (place, name, _), original in zip(REPLACED, originals, strict=True):
                setattr(place, name, original)


def forget() -> None:
    """Drop the facts of earlier games.

    TextWorld keeps every fact it ever made, half a megabyte for each game. It compares facts by
    value, so one that is made anew is as good.
    """
    with _lock:
        if len(_memento_cache) > FACTS_KEPT:
            _memento_cache.clear()
