"""Desk: a shop's service desk, where a customer wants something and the database must end up right.

A small tau-bench of our own. The agent reads a policy, asks a scripted customer what is wanted,
looks things up, and calls tools that change a database. The customer says only what is asked. An
episode ends with ``close`` or ``transfer``; it is won if the database is then what the policy makes
of the wishes, and if a human was called exactly where the policy says so. Tools refuse what cannot
be done, not what must not be done.

The task decides customers, orders and wishes; the seed decides what the customer says first, and
which of the things asked for the customer knows by heart. ``docs/environments/games.md`` has the
protocol.
"""

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ascribe_lab.envs.protocol import Outcome, Start, TextEnvironment

NAMES = ("anna", "boris", "chloe", "david", "emma", "felix", "grace", "hugo")
ZIPS = ("1010", "2020", "3030", "4040", "5050", "6060")
STREETS = ("oak_street", "elm_street", "mill_lane", "park_road", "hill_road", "lake_view")
PRODUCTS = ("lamp", "chair", "kettle", "mirror", "clock", "shelf", "radio", "carpet")
OPTIONS = ("red", "blue", "green", "black", "white", "silver")
PAYMENTS = ("card", "transfer_account")
VOUCHER = "voucher"
REASONS = ("mistake", "unneeded", "too_dear")
TOPICS = ("name", "zip", "wish", "order", "item", "detail", "more")
FAMILIES = ("cancel", "return", "exchange", "address")

POLICY = """You work at the service desk of a shop. Say one command at a time:
ask TOPIC: name, zip, wish, order, item, detail or more (whether there is another wish)
find_customer NAME ZIP | get_member CUSTOMER | list_orders CUSTOMER | get_order ORDER
get_product ITEM | cancel_order ORDER REASON | return_item ORDER ITEM METHOD
exchange_item ORDER ITEM OPTION | change_address ORDER STREET
transfer (to a human, which ends the talk) | close (ends the talk)
Policy: Find the customer by name and zip, and act on no order of somebody else.
Cancel pending orders alone, for the reasons mistake and unneeded.
Return and exchange delivered items alone. Refund a return to the payment of its order.
A voucher is for gold members alone; others who want one get the payment of the order.
Exchange for an option that the shop has: the first wish, or else the second.
Change the address of pending orders alone.
Where the policy forbids a wish, transfer, and change nothing for it.
Ask for more before you close."""


class Wish(NamedTuple):
    """What the customer wants.

    Attributes:
        kind: one of ``FAMILIES``.
        order: the number of the order.
        item: the product; the first one, for wishes about an order.
        detail: reason, method of the refund, options in order of preference, or street.
    """

    kind: str
    order: str
    item: str
    detail: tuple[str, ...]


@dataclass
class Talk:
    """An episode: the database, the wishes, and what was said.

    Attributes:
        database: customers, orders and stock; everything that a tool may change.
        goal: the orders as they must be at the end.
        human: whether a human must be called.
        customer: who talks, with name and zip.
        wishes: in the order in which the customer tells them.
        by_street: of each wish, whether the customer knows the order by its street alone.
        current: the wish that is talked about.
        known: what the customer has said, by topic with the number of the wish.
        seen: what was looked up, in sorted order.
        ended: whether a tool has ended the talk, and whether a human was called.
    """

    database: dict[str, Any]
    goal: dict[str, Any]
    human: bool
    customer: str
    wishes: tuple[Wish, ...]
    by_street: tuple[bool, ...]
    current: int = 0
    known: dict[str, str] = field(default_factory=dict)
    seen: dict[str, str] = field(default_factory=dict)
    ended: str = ""

    @property
    def wish(self) -> Wish:
        """The wish that is talked about."""
        return self.wishes[self.current]

    def topic(self, name: str) -> str:
        """The key of a topic in ``known``."""
        return name if name in ("name", "zip") else f"{name} {self.current + 1}"

    def tell(self, name: str) -> str:
        """What the customer answers to a topic."""
        wish, own = self.wish, self.database["customers"][self.customer]
        if name == "order" and self.by_street[self.current]:
            said = f"the one to {self.database['orders'][wish.order]['street']}"
        else:
            said = {
                "name": own["name"],
                "zip": own["zip"],
                "wish": wish.kind,
                "order": wish.order,
                "item": wish.item,
                "detail": " else ".join(wish.detail),
            }[name]
        self.known[self.topic(name)] = said
        return said


class RefusedError(Exception):
    """A tool cannot do what it was asked."""


class Desk(TextEnvironment[Talk]):
    """A service desk. See ``docs/environments/games.md``.

    Args:
        horizon: number of commands after which an episode is truncated.
        expert: whether info has ``expert_action``.
        tasks: how many tasks there are; the first forty are always the same.
    """

    file_options = frozenset({"horizon", "expert", "tasks"})
    example_actions = ("ask name", "ask wish", "list_orders c1", "get_order w20", "close")

    def __init__(self, *, horizon: int = 24, expert: bool = False, tasks: int = 40) -> None:
        super().__init__(horizon=horizon, expert=expert)
        self.tasks = tasks

    def begin(self, task: int, generator: np.random.Generator) -> Start[Talk]:
        talk = _talk(np.random.default_rng([7, task]), task)
        talk.by_street = tuple(bool(generator.random() < 0.5) for _ in talk.wishes)
        first = str(generator.choice(("name", "wish", "order", "item", "detail")))
        said = f"Customer: hello. {first}: {talk.tell(first)}"
        return Start(talk, said, POLICY, "+".join(wish.kind for wish in talk.wishes))

    def act(self, episode: Talk, action: str) -> Outcome:
        name, *given = action[:200].split() or [""]
        if name not in TOOLS or len(given) != TOOLS[name].arguments:
            return Outcome(f"Error: no such command: {action[:60]!r}", valid=False)
        try:
            said = TOOLS[name].run(episode, *given)
        except RefusedError as error:
            return Outcome(f"Error: {error}", valid=False)
        if not episode.ended:
            return Outcome(said)
        right = episode.database["orders"] == episode.goal
        won = right and episode.human == (episode.ended == "transfer")
        return Outcome(said, reward=float(won), terminated=True, won=won)

    def state_key(self, episode: Talk, observation: str) -> str:  # noqa: ARG002
        """Database, what the customer has said, and what was looked up; never how it was put."""
        orders = json.dumps(episode.database["orders"], sort_keys=True)
        known = sorted(episode.known.items()), sorted(episode.seen), episode.current
        return f"{known} {orders}"

    def clone(self) -> "Desk":
        """A copy that goes on from here, and leaves this episode as it is."""
        return copy.deepcopy(self)

    def expert_action(self, episode: Talk) -> str | None:
        return next(iter(open_actions(episode)), None)


def open_actions(talk: Talk) -> list[str]:
    """What a careful agent may do now: all of it is needed, and the order is free where it is."""
    wish, known = talk.wish, talk.known
    needs = [f"ask {topic}" for topic in ("name", "zip") if topic not in known]
    needs += [f"ask {t}" for t in ("wish", "order", "detail") if talk.topic(t) not in known]
    about_item = wish.kind in ("return", "exchange")
    if about_item and talk.topic("item") not in known:
        needs.append("ask item")
    found, own = f"customer {talk.customer}", talk.database["customers"][talk.customer]
    if "name" in known and "zip" in known and found not in talk.seen:
        needs.append(f"find_customer {own['name']} {own['zip']}")
    if found in talk.seen:
        vague = talk.by_street[talk.current] and talk.topic("order") in known
        if vague and f"orders {talk.customer}" not in talk.seen:
            needs.append(f"list_orders {talk.customer}")
        clear = talk.topic("order") in known and not vague
        clear = clear or f"orders {talk.customer}" in talk.seen
        if clear and f"order {wish.order}" not in talk.seen:
            needs.append(f"get_order {wish.order}")
        voucher = wish.kind == "return" and VOUCHER in wish.detail
        if voucher and f"member {talk.customer}" not in talk.seen:
            needs.append(f"get_member {talk.customer}")
        options = wish.kind == "exchange" and talk.topic("item") in known
        if options and f"product {wish.item}" not in talk.seen:
            needs.append(f"get_product {wish.item}")
    if needs:
        return needs
    change = right_change(talk.database, talk.customer, wish)
    if change is None:
        return ["transfer"]
    if not _made(talk, change):
        return [change]
    return ["close"] if f"more {len(talk.wishes)}" in known else ["ask more"]


def right_change(database: dict[str, Any], customer: str, wish: Wish) -> str | None:
    """The call that the policy wants for a wish; None where it wants a human."""
    order = database["orders"][wish.order]
    pending = order["status"] in ("pending", "cancelled")
    if wish.kind == "cancel":
        allowed = pending and wish.detail[0] in REASONS[:2]
        return f"cancel_order {wish.order} {wish.detail[0]}" if allowed else None
    if wish.kind == "address":
        return f"change_address {wish.order} {wish.detail[0]}" if pending else None
    if pending:
        return None
    if wish.kind == "return":
        gold = database["customers"][customer]["member"] == "gold"
        method = VOUCHER if VOUCHER in wish.detail and gold else order["payment"]
        return f"return_item {wish.order} {wish.item} {method}"
    held = [option for option in wish.detail if option in database["stock"][wish.item]]
    return f"exchange_item {wish.order} {wish.item} {held[0]}" if held else None


def _made(talk: Talk, change: str) -> bool:
    """Whether a change is in the database."""
    after = copy.deepcopy(talk.database)
    name, *given = change.split()
    try:
        CHANGES[name](after, *given)
    except RefusedError:
        return True
    return bool(after == talk.database)


# Tools.


def _ask(talk: Talk, topic: str) -> str:
    if topic not in TOPICS:
        raise RefusedError(f"no such topic; there are {', '.join(TOPICS)}")
    if topic != "more":
        return f"Customer: {talk.topic(topic)}: {talk.tell(topic)}"
    more = talk.current + 1 < len(talk.wishes)
    talk.known[talk.topic("more")] = "yes" if more else "no"
    talk.current += more
    return "Customer: yes, one more thing." if more else "Customer: no, that is all."


def _find_customer(talk: Talk, name: str, zip_code: str) -> str:
    for number, own in talk.database["customers"].items():
        if (own["name"], own["zip"]) == (name, zip_code):
            talk.seen[f"customer {number}"] = ""
            return str(number)
    raise RefusedError("no such customer")


def _list_orders(talk: Talk, customer: str) -> str:
    found = [
        f"{number} to {order['street']}"
        for number, order in talk.database["orders"].items()
        if order["customer"] == customer
    ]
    if not found:
        raise RefusedError("no such customer")
    talk.seen[f"orders {customer}"] = ", ".join(found)
    return ", ".join(found)


def _order(database: dict[str, Any], number: str) -> dict[str, Any]:
    if number not in database["orders"]:
        raise RefusedError("no such order")
    order: dict[str, Any] = database["orders"][number]
    return order


def _get_order(talk: Talk, number: str) -> str:
    order = _order(talk.database, number)
    items = " ".join(f"{item} {option}" for item, option in order["items"].items())
    said = f"{order['status']} {items} paid {order['payment']}"
    talk.seen[f"order {number}"] = said
    return said


def _get_product(talk: Talk, item: str) -> str:
    if item not in talk.database["stock"]:
        raise RefusedError("no such product")
    said = "has " + " ".join(talk.database["stock"][item])
    talk.seen[f"product {item}"] = said
    return said


def _get_member(talk: Talk, customer: str) -> str:
    if customer not in talk.database["customers"]:
        raise RefusedError("no such customer")
    said = str(talk.database["customers"][customer]["member"])
    talk.seen[f"member {customer}"] = said
    return said


def _end(word: str) -> Callable[[Talk], str]:
    def end(talk: Talk) -> str:
        talk.ended = word
        return "The talk is over."

    return end


def _cancel_order(database: dict[str, Any], number: str, reason: str) -> None:
    order = _order(database, number)
    if order["status"] != "pending":
        raise RefusedError(f"the order is {order['status']}")
    if reason not in REASONS:
        raise RefusedError(f"no such reason; there are {', '.join(REASONS)}")
    order["status"], order["reason"] = "cancelled", reason


def _item(database: dict[str, Any], number: str, item: str) -> dict[str, Any]:
    order = _order(database, number)
    if order["status"] != "delivered":
        raise RefusedError(f"the order is {order['status']}")
    if item not in order["items"]:
        raise RefusedError("the order has no such item")
    if item in order["done"]:
        raise RefusedError("that was done with the item before")
    return order


def _return_item(database: dict[str, Any], number: str, item: str, method: str) -> None:
    order = _item(database, number, item)
    if method not in (*PAYMENTS, VOUCHER):
        raise RefusedError(f"no such method; there are {', '.join((*PAYMENTS, VOUCHER))}")
    order["done"][item] = f"returned {method}"


def _exchange_item(database: dict[str, Any], number: str, item: str, option: str) -> None:
    order = _item(database, number, item)
    if option not in database["stock"][item]:
        raise RefusedError("the shop does not have that option")
    order["done"][item] = f"exchanged {option}"


def _change_address(database: dict[str, Any], number: str, street: str) -> None:
    order = _order(database, number)
    if order["status"] != "pending":
        raise RefusedError(f"the order is {order['status']}")
    if street not in STREETS:
        raise RefusedError("no such street")
    order["street"] = street


CHANGES: dict[str, Callable[..., None]] = {
    "cancel_order": _cancel_order,
    "return_item": _return_item,
    "exchange_item": _exchange_item,
    "change_address": _change_address,
}


class Tool(NamedTuple):
    """A command: what it does, and how many arguments it takes."""

    run: Callable[..., str]
    arguments: int


def _changing(change: Callable[..., None]) -> Callable[..., str]:
    def run(talk: Talk, *given: str) -> str:
        change(talk.database, *given)
        return "Done."

    return run


TOOLS = {
    "ask": Tool(_ask, 1),
    "find_customer": Tool(_find_customer, 2),
    "list_orders": Tool(_list_orders, 1),
    "get_order": Tool(_get_order, 1),
    "get_product": Tool(_get_product, 1),
    "get_member": Tool(_get_member, 1),
    "cancel_order": Tool(_changing(_cancel_order), 2),
    "return_item": Tool(_changing(_return_item), 3),
    "exchange_item": Tool(_changing(_exchange_item), 3),
    "change_address": Tool(_changing(_change_address), 2),
    "transfer": Tool(_end("transfer"), 0),
    "close": Tool(_end("close"), 0),
}


# Tasks.


def _talk(rng: np.random.Generator, task: int) -> Talk:
    """Customers, orders and wishes of a task; the first wish has each family in turn."""

    def pick(among: Any, size: int | None = None) -> Any:
        found = rng.permutation(among)[: size or 1].tolist()
        return found if size else found[0]

    kinds = [FAMILIES[task % 4]]
    if task // 4 % 2:
        kinds.append(pick([kind for kind in FAMILIES if kind != kinds[0]]))
    names, zips = pick(NAMES, 3), pick(ZIPS, 4)
    people = zip([names[0], *names], zips, strict=True)  # two of one name
    members = [str(rng.choice(("gold", "plain"))) for _ in range(4)]
    customers = {
        f"c{number}": {"name": name, "zip": code, "member": member}
        for number, ((name, code), member) in enumerate(zip(people, members, strict=True), 1)
    }
    stock = {product: sorted(pick(OPTIONS, 3)) for product in PRODUCTS}
    orders: dict[str, Any] = {}
    numbers = [f"w{number}" for number in sorted(pick(range(10, 30), 6))]
    streets = pick(STREETS, 3)
    for place, number in enumerate(numbers):
        orders[number] = {
            "customer": "c1" if place < 3 else f"c{place - 1}",
            "status": ("pending", "delivered")[(place + task // 8) % 2],
            "street": streets[place % 3],
            "payment": pick(PAYMENTS),
            "items": {product: pick(stock[product]) for product in pick(PRODUCTS, 2)},
            "done": {},
        }
    wishes: list[Wish] = []
    for kind, number in zip(kinds, pick(numbers[:3], 3), strict=False):
        order = orders[number]
        if wishes or rng.random() < 0.8:  # else the policy may forbid it
            order["status"] = "pending" if kind in ("cancel", "address") else "delivered"
        details = {
            "cancel": pick(REASONS, 1),
            "return": pick([VOUCHER, order["payment"]], 1),
            "exchange": pick(OPTIONS, 2),
            "address": pick([street for street in STREETS if street != order["street"]], 1),
        }
        wishes.append(Wish(kind, number, pick(list(order["items"])), tuple(details[kind])))
    database = {"customers": customers, "orders": orders, "stock": stock}
    after, human = copy.deepcopy(database), False
    for wish in wishes:
        change = right_change(database, "c1", wish)
        human = human or change is None
        if change is None:
            break
        name, *given = change.split()
        CHANGES[name](after, *given)
    return Talk(database, after["orders"], human, "c1", tuple(wishes), ())
