"""A customer who knows which product the goal was written about, and buys it."""

from ascribe.envs.bm25 import words
from ascribe.envs.webshop.goals import Goal
from ascribe.envs.webshop.pages import Visit
from ascribe.envs.webshop.reward import alike
from ascribe.envs.webshop.shop import Shop


def keywords(instruction: str) -> str:
    """What an instruction asks for as a query: its words but for the price and function words."""
    wish, _, _ = instruction.rpartition(", and price lower than ")
    return " ".join(words(wish or instruction)) or "anything"


def next_action(shop: Shop, visit: Visit) -> str | None:
    """The expert's next action; None if no search of his finds the product."""
    goal = shop.goals[visit.goal]
    if visit.place == "search":
        return _search(shop, goal)
    if visit.place == "results":
        return _look(shop, visit, goal)
    if visit.product != goal.product:
        return "click[back to search]"
    choices = choices_for(goal, shop)
    # A choice that was not asked for is forgotten on the way back to the results.
    if visit.place != "item" or visit.choices.keys() - choices.keys():
        return "click[< prev]"
    for name, value in choices.items():
        if visit.choices.get(name) != value:
            return f"click[{value}]"
    return "click[buy now]"


def choices_for(goal: Goal, shop: Shop) -> dict[str, str]:
    """The product's own option for each that the goal asks for: the same text, else one alike."""
    options = shop.wanted(goal).options
    choices: dict[str, str] = {}
    for asked in goal.options:
        names = [name for name in sorted(options) if name not in choices]
        free = [(name, value) for name in names for value in options[name]]
        same = [(name, value) for name, value in free if value == asked.lower()]
        near = same or [(name, value) for name, value in free if alike(value, asked)]
        if near:
            choices[near[0][0]] = near[0][1]
    return choices


def _search(shop: Shop, goal: Goal) -> str | None:
    """The words of the instruction if they find the product, else its title."""
    for query in (keywords(goal.instruction), " ".join(words(shop.wanted(goal).title))):
        if goal.product in shop.search(query):
            return f"search[{query}]"
    return None


def _look(shop: Shop, visit: Visit, goal: Goal) -> str:
    if goal.product in visit.shown:
        return f"click[{shop.wanted(goal).asin.lower()}]"
    if goal.product not in visit.hits:
        return "click[back to search]"
    earlier = visit.hits.index(goal.product) < visit.hits.index(visit.shown[0])
    return "click[< prev]" if earlier else "click[next >]"
