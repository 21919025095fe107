"""Records of the codecs."""

from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError

import pytest

from memoflow.providers import base
from memoflow.providers.base import PreparedRequest, PriorRound, Reply, RequestedCall, UnreadableReply, Usage
from memoflow.providers.openai_responses import OpenAIResponsesCodec

SECRET = "payload-that-must-not-show"


def test_usage_total_is_input_plus_output() -> None:
    """Cached and reasoning tokens are parts of input and output, so they are not added again."""
    assert Usage(10, 5, cached_input_tokens=4, cache_write_tokens=3, reasoning_tokens=2).total == 15


@pytest.mark.parametrize(
    "record",
    [
        RequestedCall(0, "call_1", "inc", None, "function", SECRET, True),
        Reply("completed", "stop", None, (), (), "resp_1", "gpt-5", None, {"output": SECRET}),
        PreparedRequest({"input": SECRET}, "gpt-5", None, False, None, True),
        PriorRound(15, 1, ({"output": SECRET},)),
    ],
    ids=lambda record: type(record).__name__,
)
def test_no_record_shows_payload(record: object) -> None:
    """A record in a log line or traceback shows no prompt, argument, reply or result."""
    assert SECRET not in repr(record)


def test_records_are_frozen() -> None:
    """What was read or prepared cannot be changed by whoever gets it."""
    with pytest.raises(FrozenInstanceError):
        Usage(1, 1).input_tokens = 2  # type: ignore[misc]


def test_unreadable_reply_says_its_reason_and_survives_pickling() -> None:
    """The reason is data and part of the sentence, also in another process."""
    error = pickle.loads(pickle.dumps(UnreadableReply("NOT_JSON")))
    assert (type(error), error.reason) == (UnreadableReply, "NOT_JSON")
    assert "(NOT_JSON)" in str(error)
    assert not error.retryable


def test_the_codec_has_the_shape_every_adapter_is_written_against() -> None:
    """The Responses codec and its assembler satisfy the protocols."""
    codec: base.Codec = OpenAIResponsesCodec()
    assembler: base.Assembler = codec.assembler()
    assert (codec.provider, codec.api) == ("openai", "responses")
    assert (assembler.reply(), assembler.response_id, assembler.failed, assembler.error_code) == (
        None,
        None,
        False,
        None,
    )


def test_every_public_name_exists() -> None:
    """`__all__` is sorted and names only what there is."""
    assert all(hasattr(base, name) for name in base.__all__)
