"""One game at a time on TextWorld's engine for PDDL games. Imports TextWorld: import this late."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import fast_downward
from alfworld.agents.utils.misc import Demangler
from textworld.envs.pddl import textgen
from textworld.envs.pddl.logic import GameLogic, PddlState
from textworld.generator.game import EntityInfo
from textworld.logic import Rule, Signature

from ascribe.envs.alfworld.expressions import parse
from ascribe.envs.alfworld.games import GameFileError, Rules
from ascribe.envs.alfworld.speed import faster, forget

PROPERTIES = {
    "isclean": "clean",
    "iscool": "cool",
    "ishot": "hot",
    "issliced": "sliced",
    "istoggled": "on",
}
"""What ``examine`` tells of a thing."""

# Every engine has a copy of the library to itself, for its state is global. A copy that is unloaded
# makes the process crash when the next one is loaded, so copies are handed on.
_free: list[Any] = []


@dataclass(frozen=True)
class Fact:
    """A fact in the words of the game."""

    name: str
    names: tuple[str, ...]


class Engine:
    """TextWorld's state, grammar and rules of one game, and the commands that can be given now.

    What TextWorld's own ``PddlEnv`` would say it says too, byte for byte; it only asks less often.
    """

    def __init__(self) -> None:
        self._library = _free.pop() if _free else fast_downward.load_lib()
        self._logic: Any = None
        self._state: Any = None
        self._infos: dict[str, Any] = {}
        self._actions: dict[str, Any] = {}
        self._fixed: set[str] = set()
        self._said: dict[int, str] = {}
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
                return self._tell("#intro#", {}, {})
        except GameFileError:
            raise
        except (Exception, SystemExit) as error:
            # The parsers raise all sorts of errors, and the translator leaves by SystemExit.
            raise GameFileError(f"TextWorld cannot load the game: {error!r}") from error

    def _load(self, rules: Rules) -> None:
        """Read the grammar of another game."""
        forget()
        self._rules, self._said = None, {}
        self._logic = GameLogic(domain=rules.domain, grammar=rules.grammar)
        _refuse_code(self._logic)

    def do(self, command: str, *, tell: bool = True) -> str:
        """Carry out an admissible command. Returns what happened, if it is to be told."""
        with faster():
            action = self._actions[command]
            self._state.apply(action)
            told = ""
            if tell:
                told = self._tell(action.feedback_rule, self._variables(action), action.mapping)
            self._look()
            return told

    def close(self) -> None:
        """Leave the library to the next engine. This one must not be used any more."""
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
        found = [
            Fact(name, tuple(self._infos[variable.name].name.strip() for variable in one.arguments))
            for name, *types in predicates
            for one in self._state.facts_with_signature(Signature(name, types))
        ]
        return sorted(found, key=lambda fact: (fact.name, fact.names))

    def view(self) -> str:
        """What the agent could see from where it stands, whatever it did last.

        The receptacles here and whether they are closed, what lies in the open ones, what is
        carried, and how these things are (clean, cool, hot, sliced, on).
        """
        thing, place = ("object",), ("receptacle",)
        where = {one.names[1] for one in self.facts(("atlocation", "agent", "location"))}
        here = [
            one.names[0]
            for one in self.facts(("receptacleatlocation", "receptacle", "location"))
            if one.names[1] in where
        ]
        openable = {one.names[0] for one in self.facts(("openable", *place))}
        opened = {one.names[0] for one in self.facts(("opened", *place))}
        lying: dict[str, list[str]] = {}
        for one in self.facts(("inreceptacle", *thing, *place)):
            lying.setdefault(one.names[1], []).append(one.names[0])
        carried = [one.names[1] for one in self.facts(("holds", "agent", *thing))]
        how: dict[str, list[str]] = {}
        for one in self.facts(*((name, *thing) for name in PROPERTIES)):
            how.setdefault(one.names[0], []).append(PROPERTIES[one.name])

        def shown(names: Iterable[str]) -> str:
            return ", ".join(" ".join([*how.get(name, ()), name]) for name in names) or "nothing"

        seen = [
            f"{name}: closed"
            if name in openable and name not in opened
            else f"{name}: {shown(lying.get(name, ()))}"
            for name in here
        ]
        return "; ".join([*seen, f"carried: {shown(carried)}"])

    def _look(self) -> None:
        """Find out what can be done now."""
        self._actions = {}
        for action in self._state.all_applicable_actions():
            said = self._said.get(action.id)
            if said is None:
                variables = self._variables(action)
                said = self._tell(action.command_template, variables, action.mapping)
                said = said.format(**{name: info.name for name, info in self._infos.items()})
                if action.command_template in self._fixed:
                    self._said[action.id] = said
            # Of commands that read alike the first one counts, as in TextWorld.
            self._actions.setdefault(said, action)

    def _variables(self, action: Any) -> dict[str, Any]:
        return {hole.name: self._infos[filled.name] for hole, filled in action.mapping.items()}

    def _tell(self, text: str, variables: dict[str, Any], mapping: dict[Any, Any]) -> str:
        context = {
            "state": self._state,
            "facts": (),
            "variables": variables,
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
        for expression in _expressions(symbol):
            parse(expression)


def _names(facts: Iterable[Any]) -> dict[str, Any]:
    """Everything in a game, under the names that ALFWorld gives: ``potato 1``."""
    types = {variable.name: variable.type for fact in facts for variable in fact.arguments}
    infos = {name: EntityInfo(name, types[name]) for name in sorted(types)}
    called = Demangler(game_infos=infos)
    for name, info in infos.items():
        info.name = called.demangle_alfred_name(name)
        info.definite, info.indefinite = "the", "a"
    return infos


def _expressions(symbol: Any) -> list[str]:
    """The expressions in a symbol of a grammar."""
    if isinstance(symbol, textgen.EvalSymbol):
        return [str(symbol.expression)]
    if isinstance(symbol, textgen.ConditionalSymbol):
        return _expressions(symbol.expression)
    if isinstance(symbol, textgen.ListSymbol):
        return _expressions(symbol.symbol)
    return []


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
    """The predicates that a symbol asks about; None if that cannot be told."""
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
