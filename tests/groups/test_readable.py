"""Tool calls are shown as a programmer writes them, and hostile ones as what they are."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascribe.groups.responses import all_calls, readable

pytestmark = pytest.mark.unit

ORDER = '{"arguments":{"order_id":900},"name":"get_order"}'


@pytest.mark.parametrize(
    ("action", "shown"),
    [
        (ORDER, "get_order(order_id=900)"),
        ('{"name":"read","arguments":{"path":"/etc"}}', 'read(path="/etc")'),
        ('{"name":"read","arguments":"{\\"path\\": \\"/etc\\"}"}', 'read(path="/etc")'),
        ('{"name":"stop"}', "stop()"),
        ('{"input":{"q":"login"},"name":"search"}', 'search(q="login")'),
        ('{"name":"search","args":{"q":"login"}}', 'search(q="login")'),
        (f"[{ORDER},{ORDER}]", "get_order(order_id=900); get_order(order_id=900)"),
        ('{"name":"f","arguments":{"b":[1,{"x":null}],"a":2.0}}', 'f(b=[1,{"x":null}], a=2.0)'),
        (
            f"Look. <tool_call>\n{ORDER}\n</tool_call><|im_end|>",
            "Look. get_order(order_id=900)<|im_end|>",
        ),
        (f"<tool_call>{ORDER}</tool_call>\n" * 2, "get_order(order_id=900)\n" * 2),
        # Names that are more than a word are quoted, so that none passes for another call.
        ('{"name":"f(x=1)","arguments":{}}', '"f(x=1)"()'),
        ('{"name":"f","arguments":{"a=1, b":2}}', 'f("a=1, b"=2)'),
        ('{"name":"a\\nb","arguments":{}}', '"a\\nb"()'),
        # What is no call stays as it is written.
        *(
            (text, text)
            for text in (
                *("go left", "", "{", "[]", "{}", '{"name":1}', '{"city":"Bern"}', "[1]"),
                *("<tool_call>no JSON</tool_call>", f"<tool_call>{ORDER}", f"{ORDER}</tool_call>"),
                '{"name":"f","arguments":"not JSON"}',
                *('{"name":"f","input":"text"}', '{"name":"f","input":{},"output":{}}'),
                *('{"name":"f","args":{},"input":{}}', '{"input":{"q":"login"}}'),
            )
        ),
    ],
)
def test_calls_are_readable(action: str, shown: str) -> None:
    assert readable(action) == shown


@given(st.text(), st.text())
def test_every_call_is_shown_with_its_name(name: str, value: str) -> None:
    action = json.dumps({"arguments": {"x": value}, "name": name}, ensure_ascii=False)
    shown = readable(action)
    if all_calls(action):
        assert shown.endswith(f"(x={json.dumps(value, ensure_ascii=False)})")
        assert shown.startswith((name, json.dumps(name, ensure_ascii=False)))
    else:
        assert shown == action
