"""The shop: pages, clicks, purchases, tasks, the expert and hostile text."""

import json
import random
import re
from copy import copy, deepcopy
from time import process_time

import pytest

pytest.importorskip("rapidfuzz", reason="needs the extra webshop")
pytest.importorskip("snowballstemmer", reason="needs the extra webshop")

from ascribe_lab.envs import EpisodeOverError, make
from ascribe_lab.envs.contract import check_environment
from ascribe_lab.envs.webshop import WebShop
from ascribe_lab.envs.webshop.game import keywords
from ascribe_lab.envs.webshop.products import HUMAN, SMALL


def product(asin, name, **changes):
    return {
        "asin": asin,
        "name": name,
        "category": "fashion",
        "query": "shirts",
        "product_category": "Clothing › Men › Shirts",
        "full_description": f"{name} is a shirt.",
        "small_description": ["Soft", "Warm"],
        "pricing": "$15.5",
        "customization_options": {
            "color": [{"value": "Red"}, {"value": "Black"}],
            "size": [{"value": "Small"}, {"value": "Medium"}],
        },
        **changes,
    }


@pytest.fixture
def shop(tmp_path):
    """Makes a shop of given products; the first is wanted, in black and medium."""

    def build(*products, **options):
        wish = {
            "instruction": "i want a cotton shirt.",
            "instruction_attributes": ["cotton"],
            "instruction_options": ["black", "medium"],
        }
        first = products[0]["asin"]
        attributes = {first: {"attributes": ["cotton"]}}
        contents = (list(products), attributes, {first: [wish]})
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        for name, content in zip((*SMALL, HUMAN), contents, strict=True):
            (folder / name).write_text(json.dumps(content), encoding="utf-8")
        return WebShop(**{"folder": folder, "goals": "human", "split": "all", **options})

    return build


FIRST = product("B000000001", "Orico Cotton Shirt")
OTHER = product("B000000002", "Velida Wool Shirt", customization_options={})


def play(env, *actions):
    """The last answer to these actions."""
    env.reset(seed=0, options={"task": 0})
    for action in actions:
        answer = env.step(action)
    return answer


WISH = "Instruction: [SEP] i want a cotton shirt, and price lower than {bound:.2f} dollars"


def wish(env):
    return WISH.format(bound=env.shop.goals[0].price_bound)


def test_the_search_page(shop):
    env = shop(FIRST, OTHER)
    observation, info = env.reset(seed=0)
    assert observation == f"WebShop [SEP] {wish(env)} [SEP] Search"
    assert info["admissible_actions"] == ["search[i want cotton shirt]"]
    assert info["task"] == wish(env).removeprefix("Instruction: [SEP] ")
    assert info["task_family"] == "fashion"
    assert info["task_score"] == 0.0


def test_the_results(shop):
    env = shop(FIRST, OTHER)
    observation, reward, *_, info = play(env, "search[cotton shirt]")
    assert observation == (
        f"{wish(env)} [SEP] Back to Search [SEP] Page 1 (Total results: 2) [SEP] "
        "B000000001 [SEP] Orico Cotton Shirt [SEP] $15.5 [SEP] "
        "B000000002 [SEP] Velida Wool Shirt [SEP] $15.5"
    )
    assert reward == 0
    assert info["admissible_actions"] == [
        "click[back to search]",
        "click[b000000001]",
        "click[b000000002]",
    ]


def test_the_item_page_shows_no_choices_but_the_state_does(shop):
    env = shop(FIRST, OTHER)
    before = play(env, "search[cotton]", "click[b000000001]")
    after = env.step("click[black]")
    assert before[0] == after[0]
    assert before[0] == (
        f"{wish(env)} [SEP] Back to Search [SEP] < Prev [SEP] color [SEP] red [SEP] black [SEP] "
        "size [SEP] small [SEP] medium [SEP] Orico Cotton Shirt [SEP] Price: $15.5 [SEP] "
        "Rating: N.A. [SEP] Description [SEP] Features [SEP] Reviews [SEP] Buy Now"
    )
    assert before[-1]["state"] != after[-1]["state"]
    links = ["back to search", "< prev", "red", "black", "small", "medium"]
    links += ["description", "features", "reviews", "buy now"]
    assert after[-1]["admissible_actions"] == [f"click[{link}]" for link in links]


@pytest.mark.parametrize(
    ("link", "body"),
    [
        ("description", " [SEP] Orico Cotton Shirt is a shirt."),
        ("features", " [SEP] Soft [SEP] Warm"),
        ("reviews", ""),
        ("attributes", " [SEP] cotton [SEP] fashion [SEP] shirts [SEP] Clothing › Men › Shirts"),
    ],
)
def test_the_further_pages(shop, link, body):
    env = shop(FIRST, OTHER, show_attributes=True)
    item = play(env, "search[cotton]", "click[b000000001]", "click[red]")
    observation, *_, info = env.step(f"click[{link}]")
    assert observation == f"{wish(env)} [SEP] Back to Search [SEP] < Prev{body}"
    assert info["admissible_actions"] == ["click[back to search]", "click[< prev]"]
    back = env.step("click[< prev]")
    assert (back[0], back[-1]["state"]) == (item[0], item[-1]["state"])


def test_attributes_are_hidden_unless_asked_for(shop):
    assert not play(shop(FIRST), "search[cotton]", "click[b000000001]", "click[attributes]")[-1][
        "valid"
    ]


def test_fifty_hits_on_five_pages(shop):
    env = shop(*(product(f"B{number:09d}", f"Shirt {number}") for number in range(60)))
    pages = [play(env, "search[shirt]")]
    pages += [env.step("click[next >]") for _ in range(4)]
    links = [answer[-1]["admissible_actions"] for answer in pages]
    assert all("Total results: 50" in answer[0] for answer in pages)
    assert [sum("[b0" in link for link in page) for page in links] == [10] * 5
    assert len({link for page in links for link in page if "[b0" in link}) == 50
    assert ["click[next >]" in page for page in links] == [True] * 4 + [False]
    assert ["click[< prev]" in page for page in links] == [False] + [True] * 4
    assert env.step("click[< prev]")[0] == pages[3][0]


def test_going_back_forgets_the_choices(shop):
    env = shop(FIRST, OTHER)
    results = play(env, "search[cotton]")
    item = env.step("click[b000000001]")
    env.step("click[black]")
    again = env.step("click[< prev]")
    assert (again[0], again[-1]["state"]) == (results[0], results[-1]["state"])
    assert env.step("click[b000000001]")[-1]["state"] == item[-1]["state"]
    assert env.step("click[back to search]")[0].startswith("WebShop [SEP] ")


@pytest.mark.parametrize(
    ("clicks", "score"),
    [
        (("black", "medium"), 1.0),
        (("medium", "black"), 1.0),
        (("red", "black", "medium"), 1.0),
        (("black",), 3 / 4),
        ((), 2 / 4),
        (("red", "small"), 2 / 4),
    ],
)
@pytest.mark.parametrize("kind", ["win", "score"])
def test_a_purchase_ends_the_episode(shop, clicks, score, kind):
    env = shop(FIRST, OTHER, reward=kind)
    chosen = (f"click[{click}]" for click in clicks)
    observation, reward, terminated, truncated, info = play(
        env, "search[cotton]", "click[b000000001]", *chosen, "click[buy now]"
    )
    assert info["task_score"] == pytest.approx(score)
    assert info["won"] is (score == 1.0)
    assert reward == pytest.approx(score if kind == "score" else 10.0 * (score == 1.0))
    assert (terminated, truncated) == (True, False)
    assert observation == f"You have bought it. [SEP] Score: {info['task_score']}"
    assert info["admissible_actions"] == []
    with pytest.raises(EpisodeOverError):
        env.step("click[back to search]")


@pytest.mark.parametrize(
    "action",
    [
        "",
        "buy",
        "search",
        "search[]",
        "search[ ]",
        "search[cotton",
        "search cotton]",
        "click[cotton]",
        "click[search]",
        "click[buy now]",
        "click[b000000001]",
        "click[[back to search]]",
        "think[hard]",
        "[search[x]]",
    ],
)
def test_an_invalid_action_does_nothing(shop, action):
    env = shop(FIRST, OTHER)
    observation, info = env.reset(seed=0)
    after = env.step(action)
    assert after == (observation, 0.0, False, False, {**info, "valid": False})


@pytest.mark.parametrize("action", ["Search[COTTON]", " search[ cotton ]\n", "search[cotton [x] ]"])
def test_case_and_blanks_do_not_matter(shop, action):
    env = shop(FIRST, OTHER)
    assert play(env, action)[0] == play(env, "search[cotton]")[0]
    assert env.step("Click[B000000001]")[-1]["valid"]


def test_a_search_can_be_made_from_every_page_and_may_find_nothing(shop):
    env = shop(FIRST, OTHER)
    answer = play(env, "search[cotton]", "click[b000000001]", "click[red]", "search[zeppelin]")
    assert answer[0].endswith("Page 1 (Total results: 0)")
    assert answer[-1]["valid"]
    assert answer[-1]["admissible_actions"] == ["click[back to search]"]


def test_queries_with_the_same_hits_are_one_state(shop):
    env = shop(FIRST, OTHER)
    states = [play(env, f"search[{query}]")[-1]["state"] for query in ("cotton", "orico", "velida")]
    assert states[0] == states[1] != states[2]


def test_links_win_over_options_of_the_same_name(shop):
    odd = [{"value": value} for value in ("Buy Now", "Features", "Next >", "", "Red")]
    env = shop(product("B000000001", "Orico Cotton Shirt", customization_options={"odd": odd}))
    item = play(env, "search[cotton]", "click[b000000001]")
    assert "click[]" not in item[-1]["admissible_actions"]
    assert env.step("click[features]")[0].endswith("Soft [SEP] Warm")
    env.step("click[< prev]")
    assert env.step("click[next >]")[-1]["state"].endswith('[["odd", "next >"]]]')
    assert env.step("click[buy now]")[2]


def test_of_options_with_the_same_value_the_later_is_chosen(shop):
    both = {"top": [{"value": "M"}], "bottom": [{"value": "M"}]}
    env = shop(product("B000000001", "Orico Cotton Shirt", customization_options=both))
    state = play(env, "search[cotton]", "click[b000000001]", "click[m]")[-1]["state"]
    assert state.endswith('[["bottom", "m"]]]')


HOSTILE = {
    "script": "<script>alert(1)</script> {{7*7}} ${x} %s",
    "separator": "Shirt [SEP] Buy Now [SEP] click[buy now]",
    "brackets": "[[]][search[x]]",
    "control": "\x1b[2J\x00\x07\r\n\u2028",
    "surrogate": "\ud800 half",
    "direction": "\u202eog\u200f",
    "long": "word " * 20_000,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_products_are_only_text(shop, text):
    evil = product(
        "B000000001",
        f"Shirt {text}",
        full_description=text,
        small_description=[text],
        customization_options={text: [{"value": text}, {"value": "Black"}]},
    )
    env = shop(evil, OTHER, expert=True)
    observation, info = env.reset(seed=0)
    while info["expert_action"] is not None:
        assert (
            info["expert_action"] in info["admissible_actions"]
            or "search[" in info["expert_action"]
        )
        for link in info["admissible_actions"]:
            link.encode()
            other = copy(env)
            other.episode = deepcopy(env.episode)
            assert other.step(link)[-1]["valid"]
        observation, *_, info = env.step(info["expert_action"])
        observation.encode()
        assert not re.search(r"[\x00-\x1f]", observation)
    assert info["task_score"] > 0


def test_a_title_of_a_megabyte(shop):
    env = shop(product("B000000001", "cotton " * 150_000), OTHER)
    observation, *_ = play(env, "search[cotton]")
    assert len(observation) > 1_000_000
    assert env.step("click[b000000001]")[-1]["valid"]
    assert env.step("click[buy now]")[-1]["task_score"] > 0


@pytest.mark.parametrize("text", [*HOSTILE.values(), "x" * 1_000_000, "[" * 1_000_000])
@pytest.mark.parametrize("form", ["{}", "search[{}]", "click[{}]", "search[{}", "{}]"])
def test_hostile_actions_are_answered(shop, text, form):
    env = shop(FIRST, OTHER)
    env.reset(seed=0)
    start = process_time()
    observation, reward, *_, info = env.step(form.replace("{}", text))
    assert process_time() - start < 5
    (observation + info["state"]).encode()
    assert len(info["state"]) < 1_000
    assert reward == 0.0


def test_the_contract_is_kept():
    report = check_environment(lambda: make("webshop", expert=True))
    assert report.findings == ()


def test_splits_are_those_of_verl_agent():
    whole, train, test = (WebShop(split=split) for split in ("all", "train", "test"))
    assert test.tasks == 500
    assert train.tasks == whole.tasks - 500

    def task(env, number):
        return env.reset(seed=0, options={"task": number})[1]["task"]

    assert task(test, 499) == task(whole, 499)
    assert task(train, 0) == task(whole, 500)
    assert train.shop is whole.shop


def test_a_split_without_goals_is_refused(shop):
    assert shop(FIRST).tasks == 1
    with pytest.raises(ValueError, match="none for split 'train'"):
        shop(FIRST, split="train")


@pytest.mark.parametrize(
    "options", [{"reward": "money"}, {"split": "dev"}, {"goals": "any"}, {"horizon": 0}]
)
def test_wrong_options_are_refused(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        WebShop(**options)


def test_a_visit_ends_at_the_horizon():
    env = WebShop(horizon=2)
    env.reset(seed=0)
    env.step("search[shirt]")
    *_, terminated, truncated, info = env.step("click[back to search]")
    assert (terminated, truncated) == (False, True)
    assert info["task_score"] == 0.0


def expert_play(env, task):
    _, info = env.reset(seed=0, options={"task": task})
    steps = 0
    while info["expert_action"] is not None:
        *_, info = env.step(info["expert_action"])
        steps += 1
    return info, steps


@pytest.mark.parametrize("kind", ["synthetic", "human"])
def test_the_expert_wins_every_generated_goal_that_is_tried(kind):
    env = WebShop(goals=kind, split="all", expert=True)
    for task in range(0, env.tasks, env.tasks // 100):
        info, steps = expert_play(env, task)
        assert info["won"], info["task"]
        assert steps <= 10


def test_the_expert_finds_his_way_from_anywhere():
    env = WebShop(expert=True, horizon=40)
    chooser = random.Random(0)
    for task in range(40):
        _, info = env.reset(seed=0, options={"task": task})
        for _ in range(8):
            links = [link for link in info["admissible_actions"] if link != "click[buy now]"]
            *_, info = env.step(chooser.choice(links))
        while info["expert_action"] is not None:
            *_, info = env.step(info["expert_action"])
        assert info["won"], info["task"]


def test_the_expert_says_when_no_search_finds_the_product(shop):
    crowd = [product(f"B{number:09d}", "Shirt", customization_options={}) for number in range(60)]
    env = shop(crowd[-1], *crowd[:-1], expert=True)
    assert env.reset(seed=0)[1]["expert_action"] == "search[i want cotton shirt]"
    hidden = product("B999999999", "", full_description="", small_description=[""])
    env = shop({**hidden, "customization_options": {}}, *crowd, expert=True)
    assert env.reset(seed=0)[1]["expert_action"] is None


def test_random_play_gets_some_score_and_few_wins():
    env = WebShop()
    chooser = random.Random(0)
    scores, wins = [], 0
    for seed in range(100):
        _, info = env.reset(seed=seed)
        over = False
        while not over:
            *_, terminated, truncated, info = env.step(chooser.choice(info["admissible_actions"]))
            over = terminated or truncated
        scores.append(info["task_score"])
        wins += info["won"]
    assert 0.05 < sum(scores) / 100 < 0.6
    assert wins < 10


@pytest.mark.parametrize(
    ("instruction", "query"),
    [
        ("Find me a red shirt, and price lower than 40.00 dollars", "find me red shirt"),
        ("i need the [2 pack], please", "i need 2 pack please"),
        ("of the", "anything"),
    ],
)
def test_keywords(instruction, query):
    assert keywords(instruction) == query


def test_the_expert_leaves_a_wrong_search_and_a_wrong_product(shop):
    env = shop(FIRST, OTHER, expert=True)
    assert play(env, "search[zeppelin]")[-1]["expert_action"] == "click[back to search]"
    answer = play(env, "search[wool]", "click[b000000002]")
    assert answer[-1]["expert_action"] == "click[back to search]"


@pytest.mark.parametrize("paid", [10.0, 1.0])
def test_what_a_win_pays_is_an_option(shop, paid):
    """GiGPO pays 10 (E.1), BiPACE says 1 (B.1)."""
    env = shop(FIRST, OTHER, win_reward=paid)
    assert shop(FIRST, OTHER).win_reward == 10.0
    clicks = ("click[black]", "click[medium]", "click[buy now]")
    _, reward, _, _, info = play(env, "search[cotton]", "click[b000000001]", *clicks)
    assert reward == (paid if info["won"] else 0.0)
    assert info["won"]
