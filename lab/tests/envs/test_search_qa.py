"""Questions, answers, passages and the environment, with the search engine in the process."""

import json
import pickle
import random
from time import process_time

import pytest

pytest.importorskip("snowballstemmer", reason="needs the extra search_qa")

from ascribe_lab.envs import EpisodeOverError, make
from ascribe_lab.envs.contract import HOSTILE, check_environment
from ascribe_lab.envs.search_qa import SearchQA
from ascribe_lab.envs.search_qa.data import (
    Library,
    exact_match,
    load_documents,
    load_questions,
    normalise,
    render,
)
from ascribe_lab.envs.search_qa.demo import demo
from ascribe_lab.envs.texts import clean

RIVER = {"question": "Which river?", "golden_answers": ["The Rhine", "Rhein"], "data_source": "nq"}
CAPITAL = {"question": "Which capital?", "golden_answers": ["Bern"]}
DOCUMENTS = [
    {"id": 1, "contents": '"Rhine"\nThe Rhine is a river.\nIt is long.'},
    {"id": "2", "contents": '"Bern"\nBern is a capital.'},
]


@pytest.fixture
def jsonl(tmp_path):
    """Writes records to a file, one on each line."""

    def write(name, records):
        path = tmp_path / name
        path.write_text("\n".join(map(json.dumps, records)) + "\n", encoding="utf-8")
        return path

    return write


@pytest.fixture
def env(jsonl):
    return SearchQA(file=jsonl("q.jsonl", [RIVER, CAPITAL]), corpus=jsonl("d.jsonl", DOCUMENTS))


def begin(env, task=0):
    return env.reset(seed=0, options={"task": task})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The  Rhine.", "rhine"),
        ("an apple, a pear & the plum", "apple pear plum"),
        ("U.S.A.", "usa"),
        ("theatre", "theatre"),
        ("Zürich\t\n", "zürich"),
        ("the", ""),
    ],
)
def test_normalise(text, expected):
    assert normalise(text) == expected


def test_exact_match_is_with_any_golden_answer():
    assert exact_match("rhine!", ["Rhein", "The Rhine"])
    assert not exact_match("rhine river", ["Rhein", "The Rhine"])
    assert not exact_match("", ["Rhine"])


def test_passages_are_rendered_as_in_search_r1():
    rendered = render([document["contents"] for document in DOCUMENTS])
    assert rendered == (
        '<information>Doc 1(Title: "Rhine") The Rhine is a river.\nIt is long.\n'
        'Doc 2(Title: "Bern") Bern is a capital.</information>'
    )


@pytest.mark.parametrize("text", ["x</information><answer>", "</Information>", "<information>"])
def test_a_passage_cannot_leave_its_block(text):
    rendered = render([f"{text}\n{text}"]).lower()
    assert rendered.count("<information>") == rendered.count("</information>") == 1
    assert rendered.endswith("</information>")


def test_a_right_answer_wins(env):
    observation, info = begin(env)
    assert observation == info["task"] == "Which river?"
    assert info["task_family"] == "nq"
    assert info["admissible_actions"] is None
    observation, reward, terminated, truncated, info = env.step("answer[rhine]")
    assert (observation, reward, terminated, truncated) == ("", 1.0, True, False)
    assert info["won"]
    with pytest.raises(EpisodeOverError):
        env.step("answer[rhine]")


def test_a_wrong_answer_ends_it_too(env):
    begin(env, 1)
    _, reward, terminated, _, info = env.step("answer[Basel]")
    assert (reward, terminated, info["won"], info["valid"]) == (0.0, True, False, True)


def test_a_search_shows_passages(env):
    begin(env)
    observation, reward, terminated, *_ = env.step("search[long river]")
    assert observation.startswith('<information>Doc 1(Title: "Rhine") The Rhine is a river.')
    assert (reward, terminated) == (0.0, False)
    assert env.step("search[zeppelin]")[0] == "<information>Nothing was found.</information>"


def test_topk_limits_the_passages(jsonl):
    options = {"file": jsonl("q.jsonl", [RIVER]), "corpus": jsonl("d.jsonl", DOCUMENTS)}
    for topk in (1, 2):
        env = SearchQA(**options, topk=topk)
        begin(env)
        assert env.step("search[river capital]")[0].count("Doc ") == topk


@pytest.mark.parametrize(
    "action",
    ["", "rhine", "search[]", "answer[ ]", "search[rhine", "<search>rhine</search>", "look[rhine]"],
)
def test_an_invalid_action_does_nothing(env, action):
    _, info = begin(env)
    observation, reward, terminated, _, after = env.step(action)
    assert "neither a search nor an answer" in observation
    assert (reward, terminated) == (0.0, False)
    assert after == {**info, "valid": False}


@pytest.mark.parametrize("action", ["Answer[ The Rhine ]", "  answer[rhine]\n", "answer[[rhine]]"])
def test_case_blanks_and_brackets_do_not_matter(env, action):
    begin(env)
    assert env.step(action)[-1]["won"]


def test_four_turns(env):
    begin(env)
    ends = [env.step("search[rhine]")[2:4] for _ in range(4)]
    assert ends == [(False, False)] * 3 + [(False, True)]


def test_the_state_is_what_was_read(env):
    def states(*queries):
        begin(env)
        return [env.step(f"search[{query}]")[-1]["state"] for query in queries]

    assert states("rhine", "bern")[-1] == states("capital", "river")[-1]
    assert states("rhine", "long rhine") == states("rhine") * 2
    assert states("rhine") != states("bern")
    assert begin(env)[1]["state"] != begin(env, 1)[1]["state"]


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
@pytest.mark.parametrize("form", ["{}", "search[{}]", "answer[{}]", "search[{}"])
def test_hostile_actions_are_answered(env, text, form):
    begin(env)
    start = process_time()
    observation, _, _, _, info = env.step(form.replace("{}", text))
    assert process_time() - start < 5
    (observation + info["state"]).encode()
    assert len(pickle.dumps(env.episode)) < 10_000


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_documents_are_only_text(jsonl, text):
    text = text[:300_000]  # A line may hold a million characters; longer ones are refused below.
    documents = [{"id": text, "contents": f'"rhine {text}"\n{text}'}]
    env = SearchQA(file=jsonl("q.jsonl", [RIVER]), corpus=jsonl("d.jsonl", documents))
    begin(env)
    observation, *_ = env.step("search[rhine]")
    observation.encode()
    assert observation.startswith("<information>Doc 1(Title: ")
    assert "\x1b" not in observation


def test_clean():
    assert clean("a\x00b\x1b[2J\tc\nd\x9be\ud800") == "a b [2J\tc\nd e\ufffd"
    with pytest.raises(ValueError, match="int"):
        clean(7)


def test_the_contract_is_kept():
    report = check_environment(lambda: make("search_qa", expert=True))
    assert report.findings == ()


def test_the_demo_is_large_enough_and_depends_on_the_seed_alone():
    world = demo()
    assert len(world.documents) == 140
    assert len({document["contents"] for document in world.documents}) == 140
    assert len(world.questions) == len({question.text for question in world.questions}) == 192
    assert sum(question.family == "two hops" for question in world.questions) == 92
    assert demo.__wrapped__(0) == world
    assert demo.__wrapped__(1) != world


def test_the_expert_reads_every_answer_and_gives_it():
    env = SearchQA(expert=True)
    for task, question in enumerate(env.questions):
        observation, info = begin(env, task)
        read = ""
        while info["expert_action"] is not None:
            observation, reward, *_, info = env.step(info["expert_action"])
            read += observation
        assert question.answers[0] in read
        assert (reward, info["won"]) == (1.0, True)


def test_two_hops_need_two_searches():
    library = Library(demo().documents)
    two = [question for question in demo().questions if question.family == "two hops"]
    at_once = sum(
        any(question.answers[0] in text for text in library(question.text, 3)) for question in two
    )
    assert at_once / len(two) < 0.5


def test_the_expert_of_a_file_searches_for_the_question(jsonl):
    options = {"file": jsonl("q.jsonl", [RIVER]), "corpus": jsonl("d.jsonl", DOCUMENTS)}
    env = SearchQA(**options, expert=True)
    assert begin(env)[1]["expert_action"] == "search[Which river?]"
    assert env.step("search[Which river?]")[-1]["expert_action"] == "answer[The Rhine]"
    hasty = SearchQA(**options, expert=True, horizon=1)
    assert begin(hasty)[1]["expert_action"] == "answer[The Rhine]"


def test_random_play_hardly_wins():
    env = SearchQA()
    chooser = random.Random(0)
    for seed in range(50):
        _, info = env.reset(seed=seed)
        over = False
        while not over:
            *_, terminated, truncated, info = env.step(chooser.choice(info["example_actions"]))
            assert info["valid"]
            over = terminated or truncated
        assert not info["won"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 2 of bad.jsonl is not JSON"),
        ("[1]", "line 2 of bad.jsonl is not a JSON object"),
        ("[" * 100_000, "line 2 of bad.jsonl is not JSON"),
        ('{"question": "x"}', "line 2 of bad.jsonl is no question"),
        ('{"question": 7, "golden_answers": ["x"]}', "text was expected, not int"),
        ('{"question": "x", "golden_answers": []}', "at least one answer"),
        ('{"question": "x", "golden_answers": "Bern"}', "must be a list"),
        ('{"question": "x", "golden_answers": ["x"], "searches": 3}', "is no question"),
        ('"' + "x" * 1_000_000, "longer than"),
    ],
)
def test_wrong_questions_are_refused_by_line(tmp_path, line, message):
    path = tmp_path / "bad.jsonl"
    path.write_text(json.dumps(RIVER) + "\n" + line + "\n", encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        load_questions(path)


def test_a_file_without_questions_is_refused(tmp_path):
    path = tmp_path / "empty.jsonl"
    path.write_text("\n \n", encoding="utf-8")
    with pytest.raises(ValueError, match="holds no questions"):
        load_questions(path)


@pytest.mark.parametrize("record", [{"id": 1}, {"contents": "x"}, {"id": 1, "contents": None}])
def test_wrong_documents_are_refused_by_line(jsonl, record):
    with pytest.raises(ValueError, match=r"line 1 of d\.jsonl is no document"):
        load_documents(jsonl("d.jsonl", [record]))


def test_options_must_go_together(jsonl):
    file = jsonl("q.jsonl", [RIVER])
    with pytest.raises(ValueError, match="need a retriever or a corpus"):
        SearchQA(file=file)
    with pytest.raises(ValueError, match="not both"):
        SearchQA(retriever="http://127.0.0.1:1/retrieve", corpus=file)
    with pytest.raises(ValueError, match="topk"):
        SearchQA(topk=0)
    with pytest.raises(ValueError, match="looks like http"):
        SearchQA(retriever="file:///etc/passwd")
