"""WebShop's score of a purchase.

    score = type · (attribute hits + option hits + [price <= bound]) / (attributes + options + 1)

``type`` says whether the right kind of thing was bought: 1, or 0.5 when neither the query, nor two
categories, nor more than a fifth of the title's nouns agree; 0.1 when less than a tenth of the
nouns agree, and 0 when none does.

The original finds nouns with a language model. Here every word of the title that begins with a
letter counts, except function words: ``docs/environments/external.md`` says what this changes.
"""

from collections.abc import Mapping

from ascribe_lab.envs.bm25 import STOP_WORDS, WORD
from ascribe_lab.envs.protocol import MissingExtraError
from ascribe_lab.envs.webshop.products import Product, ShoppingGoal

ALIKE = 85
"""Two texts count as the same above this token set ratio."""

EXACT_OPTIONS = frozenset({"size"})
"""Options that must agree letter by letter."""

_COLOURS = (
    "beige black blue bronze brown burgundy charcoal copper coral cream gold gray green grey ivory "
    "khaki lavender lilac lime magenta maroon mint mustard navy olive orange peach pink plum "
    "purple red rose rust silver tan teal turquoise violet white yellow"
)
COLOURS = tuple(_COLOURS.split())
"""An option is reduced to the first of these that it holds: ``navy blue`` to blue."""

_FUNCTION = (
    "above after all any both can each every from has have her his its more most my off only our "
    "out over per so than too under up upon very via we when which while who without you your"
)
FUNCTION_WORDS = STOP_WORDS | frozenset(_FUNCTION.split())
LATIN_1 = dict.fromkeys(range(128, 256))


def score(
    bought: Product, choices: Mapping[str, str], goal: ShoppingGoal, wanted: Product
) -> float:
    """The score of buying a product with these choices; the goal is about ``wanted``."""
    hits = attribute_hits(bought, goal.attributes) + option_hits(bought, choices, goal.options)
    asked = len(goal.attributes) + len(goal.options) + 1
    return type_score(bought, wanted) * ((hits + (bought.price <= goal.price_bound)) / asked)


def attribute_hits(bought: Product, asked: tuple[str, ...]) -> int:
    """How many attributes the product has, or mentions in its own text."""
    return sum(
        any(alike(own, one) for own in bought.attributes) or _mentions(bought, one) for one in asked
    )


def type_score(bought: Product, wanted: Product) -> float:
    """Whether the right kind of thing was bought: 1, 0.5, 0.1 or 0."""
    paths = ({part.strip() for part in item.path.split("›")} for item in (bought, wanted))
    same_kind = bought.query == wanted.query or len(set.intersection(*paths)) >= 2
    agreement = title_agreement(bought.title, wanted.title)
    if agreement == 0:
        return 0.0
    if agreement < 0.1:
        return 0.1
    return 1.0 if same_kind or agreement > 0.2 else 0.5


def title_agreement(bought: str, wanted: str) -> float:
    """Share of the wanted title's words that the other has: distinct ones over all. 0.2 if none."""
    words = title_words(wanted)
    return len(set(words) & set(title_words(bought))) / len(words) if words else 0.2


def title_words(title: str) -> list[str]:
    """The words of a title that may say what the thing is."""
    words = WORD.findall(title.lower())
    return [word for word in words if word[0].isalpha() and word not in FUNCTION_WORDS]


def option_hits(bought: Product, choices: Mapping[str, str], asked: tuple[str, ...]) -> int:
    """How many of the chosen options were asked for, or stand in the product's own text."""
    wanted = [colour(value) for value in asked]
    hits = 0
    for name, chosen in choices.items():
        value = colour(chosen)
        exact = name in EXACT_OPTIONS
        hit = value in wanted if exact else any(alike(value, other) for other in wanted)
        hits += hit or _mentions(bought, value)
    return hits


def colour(option: str) -> str:
    """The first colour that an option holds, else the option."""
    return next((name for name in COLOURS if name in option), option)


def alike(first: str, second: str) -> bool:
    """Whether two texts have nearly the same words, in any order."""
    try:
        from rapidfuzz.fuzz import token_set_ratio
        from rapidfuzz.utils import default_process
    except ImportError as error:
        raise MissingExtraError("rapidfuzz", "webshop") from error
    # As the library of the original prepares and rounds them.
    texts = (default_process(text.translate(LATIN_1)) for text in (first, second))
    return round(token_set_ratio(*texts)) > ALIKE


def _mentions(product: Product, text: str) -> bool:
    """Whether the title, the features or the description hold a text."""
    parts = (product.title, " ".join(product.features), product.description)
    return any(text in part.lower() for part in parts)
