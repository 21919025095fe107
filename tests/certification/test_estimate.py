"""What the estimates' program does around the model: its rows, its table, and how it ends without one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from certification.estimate import program, server
from certification.estimate.cases import CASES, Case
from certification.estimate.program import Row, table
from memoflow.providers.anthropic_messages import AnthropicMessagesCodec
from memoflow.providers.openai_chat import OpenAIChatCodec
from memoflow.providers.openai_responses import OpenAIResponsesCodec

CODECS: dict[str, Any] = {
    "responses": OpenAIResponsesCodec(),
    "chat": OpenAIChatCodec(),
    "messages": AnthropicMessagesCodec(),
}
GOOD = Row("chat", "English", 1_000, 1_112, 400, None, 250)
COUNTED = Row("messages", "English", 1_000, 1_128, 450, 250, 250)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("api", CODECS)
def test_every_input_is_a_request_that_can_be_measured(api: str, case: Case) -> None:
    """Of every API, wholly by its text."""
    prepared = CODECS[api].prepare(case.request(api, "some-model", 1))
    assert CODECS[api].needs_declaration(prepared) == ()
    assert prepared.output_cap == 1


def test_turns_are_the_users_and_the_assistants() -> None:
    """By turns, the user's first."""
    assert [m["role"] for m in Case("", ("a", "b", "c")).messages()] == ["user", "assistant", "user"]


@pytest.mark.parametrize(
    ("row", "holds"),
    [
        (GOOD, True),
        (COUNTED, True),
        (Row("chat", "", 1, 10, 10, None, 11), False),
        (Row("messages", "", 1, 10, 10, 8, 9), False),
        (Row("chat", "", 1, 10, 5, None, 9), True),
    ],
)
def test_a_row_holds_its_rules(row: Row, holds: bool) -> None:
    """The bound is one and a count is exact; an estimate may be exceeded."""
    assert row.holds is holds


def test_the_table_is_in_columns() -> None:
    """Names to the left, figures to the right, and ratios of both ways to measure."""
    assert table([GOOD, COUNTED]).splitlines() == [
        "api       input    bytes  bound  estimate  counted  actual  bound ÷  estimate ÷",
        "chat      English  1,000  1,112       400        -     250     4.45        1.60",
        "messages  English  1,000  1,128       450      250     250     4.51        1.80",
    ]


def test_without_a_model_the_program_says_how_to_get_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2, and no table."""
    monkeypatch.setattr(server, "find_spec", lambda name: None)
    assert program.main([]) == 2
    out, err = capsys.readouterr()
    assert (out, server.INSTALL in err) == ("", True)


@pytest.mark.parametrize(("rows", "code"), [([GOOD, COUNTED], 0), ([Row("chat", "", 1, 1, 1, None, 2)], 1)])
def test_the_exit_code_is_whether_all_rows_hold(
    rows: list[Row], code: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The rows are kept, with what they were measured on."""

    @contextmanager
    def no_server() -> Iterator[None]:
        yield None

    monkeypatch.setattr(program, "_server", no_server)
    monkeypatch.setattr(program, "measure", lambda llama, cases: iter(rows))
    assert program.main(["--out", str(tmp_path / "out.json")]) == code
    written = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert (len(written["rows"]), written["model"], "machine" in written["about"]) == (
        len(rows),
        "smollm2-135m",
        True,
    )
