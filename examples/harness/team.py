"""A LangGraph program with a helper and compaction: ``python team.py http://127.0.0.1:8912``.

The lead writes a question for a helper, which has a context of its own, and reads its answer. After
that the model summarises the conversation, the old messages are dropped, and the lead answers from
the summary.
"""

import re
import sys
from typing import Any

from attempts import play
from langchain_core.messages import HumanMessage, RemoveMessage, SystemMessage
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES

LEAD = SystemMessage("You solve small problems. You have an assistant. Be brief.")
HELPER = SystemMessage("You answer a question with a number.")
ASK = " Write one short question for your assistant."
TASKS = {
    "apples": "Anna has 2 apples and gets 3 more. How many apples does she have?",
    "legs": "A dog has 4 legs. How many legs do 2 dogs have?",
    "minus": "What is 10 - 4?",
    "days": "How many days are in a week?",
}
ANSWERS = {"apples": "5", "legs": "8", "minus": "6", "days": "7"}


def program(address: str) -> Any:
    """The graph, whose model is at an address."""
    model = ChatOpenAI(
        model="smollm2",
        base_url=address,
        api_key="none",
        temperature=1,
        top_p=0.6,
        max_tokens=24,
    )

    def plan(state: MessagesState) -> dict[str, Any]:
        return {"messages": [model.invoke(state["messages"])]}

    def answer_question(state: MessagesState) -> dict[str, Any]:
        return {"messages": [model.invoke([HELPER, *state["messages"]])]}

    helper = StateGraph(MessagesState)
    helper.add_node("answer", answer_question)
    helper.add_edge(START, "answer")
    helper.add_edge("answer", END)
    assistant = helper.compile()

    def delegate(state: MessagesState) -> dict[str, Any]:
        question = state["messages"][-1].content
        found = assistant.invoke({"messages": [HumanMessage(question)]})
        return {"messages": [HumanMessage(f"Your assistant says: {found['messages'][-1].content}")]}

    def compact(state: MessagesState) -> dict[str, Any]:
        asked = HumanMessage("Sum up what you know in one short sentence.")
        summary = model.invoke([*state["messages"], asked]).content
        task = state["messages"][1].content.removesuffix(ASK)
        left = [LEAD, HumanMessage(f"{summary}\n{task} Answer with one number.")]
        return {"messages": [RemoveMessage(REMOVE_ALL_MESSAGES), *left]}

    graph = StateGraph(MessagesState)
    for name, node in {
        "plan": plan,
        "delegate": delegate,
        "compact": compact,
        "answer": plan,
    }.items():
        graph.add_node(name, node)
    for before, after in zip(
        (START, "plan", "delegate", "compact", "answer"),
        ("plan", "delegate", "compact", "answer", END),
        strict=True,
    ):
        graph.add_edge(before, after)
    return graph.compile()


def attempt(task: str, address: str) -> float:
    """Run the program: a quarter for a number, a half for the right one, 1 if it is the last."""
    asked = HumanMessage(TASKS[task] + ASK)
    state = program(address).invoke({"messages": [LEAD, asked]})
    numbers = re.findall(r"\d+", state["messages"][-1].content)
    return (bool(numbers) + (ANSWERS[task] in numbers) + 2 * (ANSWERS[task] in numbers[-1:])) / 4


if __name__ == "__main__":
    play(TASKS, attempt, sys.argv[1])
