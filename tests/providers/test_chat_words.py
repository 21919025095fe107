"""Most chunks of a chat completion bring one more word; taken the short way they come to the same reply."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from memoflow.errors import MemoflowError
from memoflow.providers._chat_stream import ChatAssembler

FRAME = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
deltas = st.one_of(
    st.just({"content": "word"}),
    st.just({"content": "word"}),
    st.just({"content": ""}),
    st.sampled_from(
        [
            {},
            {"role": "assistant", "content": ""},
            {"content": None},
            {"content": "\ud800"},
            {"content": ["part"]},
            {"content": "a", "refusal": "b"},
            {"reasoning": "r"},
            {"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": "{}"}}]},
            None,
        ]
    ),
)
choices = st.fixed_dictionaries(
    {"index": st.sampled_from([0, 0, 0, 1, True, None]), "delta": deltas},
    optional={
        "finish_reason": st.sampled_from([None, None, None, "", "stop"]),
        "logprobs": st.sampled_from([None, {}, {"content": [{"token": "t"}]}]),
        "extra": st.sampled_from([1, {"a": 1}]),
    },
)
chunks = st.builds(
    lambda choices, more: {**FRAME, **more, "choices": choices},
    st.one_of(st.lists(choices, min_size=1, max_size=1), st.lists(choices, max_size=2)),
    st.fixed_dictionaries(
        {},
        optional={
            "model": st.sampled_from(["m", "n"]),
            "id": st.sampled_from(["chatcmpl-1", "other"]),
            "usage": st.sampled_from([None, {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}]),
            "obfuscation": st.sampled_from(["p", "pp"]),
        },
    ),
)


class TheLongWay(ChatAssembler):
    """Takes no chunk for a word."""

    __slots__ = ()

    def _take_word(self, choice: dict[str, Any]) -> bool:
        return False


def assembled(kind: type[ChatAssembler], stream: list[dict[str, Any]], **options: Any) -> Any:
    """What each chunk came to, and the reply's body in the end."""
    assembler, steps = kind(**options), []
    for chunk in stream:
        try:
            assembler.feed(chunk)
            reply = assembler.reply()
            steps.append(None if reply is None else (dict(reply.body), reply.problem, reply.usage))
        except MemoflowError as error:
            steps.append((type(error), str(error)))
    return steps


@given(st.lists(chunks, max_size=12), st.sampled_from([None, 1, 2]), st.sampled_from([300, 10**6]))
def test_words_taken_the_short_way_come_to_the_same(
    stream: list[dict[str, Any]], asked: int | None, limit: int
) -> None:
    """Body, problems, usage and refusals are equal after every chunk, whatever stands between the words."""
    options = {"choices": asked, "max_bytes": limit}
    assert assembled(ChatAssembler, stream, **options) == assembled(TheLongWay, stream, **options)
