"""``memoflow audit``: exit codes, formats and refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from memoflow import Budget, Runtime, tool
from memoflow.causal.jsonl import write_jsonl
from memoflow.causal.record import CausalRecord
from memoflow.openai import OpenAIResponses
from memoflow.testing import SimulatedProvider, call, text
from tests.causal._records import approval, rec, root, send
from tests.causal.test_reports import SARIF
from tests.causal.test_vectors import EXPECTED, VECTORS
from tests.cli._run import Cli, Result

GOOD = [root(), approval(), send()]
BAD = [root(), rec("a", "gone"), rec("b", "a")]


def audit(*args: object) -> Result:
    """``memoflow audit`` with these arguments."""
    return Cli("")("audit", *map(str, args), database=False)


def written(path: Path, records: list[CausalRecord]) -> Path:
    """A log in a file."""
    with path.open("wb") as file:
        write_jsonl(records, file)
    return path


def test_a_clean_log_passes(tmp_path: Path) -> None:
    """With exit code 0 and a sentence."""
    result = audit("check", written(tmp_path / "a.jsonl", GOOD))
    assert result == Result(
        0, "Nothing was found.\n3 records: 0 failures, 0 warnings; the audit passed.\n", ""
    )


def test_a_failure_is_exit_code_1(tmp_path: Path) -> None:
    """With its code, record and line."""
    result = audit("check", written(tmp_path / "a.jsonl", BAD))
    assert result.code == 1
    assert result.lines[1][:4] == ["FAIL", "MEMOFLOW-CAUSAL-CAUSE_NOT_BEFORE", "a", "2"]
    assert result.out.endswith("3 records: 2 failures, 0 warnings; the audit failed.\n")


def test_a_warning_is_none(tmp_path: Path) -> None:
    """It is shown, and the exit code is 0."""
    log = written(tmp_path / "a.jsonl", [rec("a", None, permitted_by="unobserved_parent")])
    result = audit("check", log)
    assert (result.code, result.lines[1][:2]) == (0, ["WARN", "MEMOFLOW-CAUSAL-MARKED_GAP"])


def test_formats_for_machines(tmp_path: Path) -> None:
    """JSON is what the library says, SARIF is valid; both name the file, not where it lies."""
    log = written(tmp_path / "a.jsonl", BAD)
    found = audit("check", log, "--format", "json")
    assert found.code == 1
    assert {key: found.json[key] for key in ("file", "profile")} == {"file": "a.jsonl", "profile": "strict"}
    assert found.json["summary"] == {"total": 3, "ok": 1, "warnings": 0, "failures": 2, "passed": False}
    assert [finding["record_id"] for finding in found.json["findings"]] == ["a", "b"]
    sarif = audit("check", log, "--format", "sarif")
    SARIF.validate(sarif.json)
    assert sarif.code == 1
    assert str(tmp_path) not in found.out + sarif.out


def test_markdown_for_people(tmp_path: Path) -> None:
    """As the library writes it."""
    shown = audit("check", written(tmp_path / "a.jsonl", BAD), "--format", "markdown")
    assert shown.code == 1
    assert shown.out.startswith("# Causal audit: failed\n")
    assert "  - chain: `a` → `b`\n" in shown.out


def test_rules_come_from_a_file(tmp_path: Path) -> None:
    """JSON or YAML, by its name."""
    log = written(tmp_path / "a.jsonl", BAD)
    (tmp_path / "r.json").write_text('{"rules": [{"id": "CAUSE_NOT_BEFORE", "enabled": false}]}')
    (tmp_path / "r.yaml").write_text("rules: [{id: CAUSE_NOT_BEFORE, enabled: false}]")
    for rules in ("r.json", "r.yaml"):
        assert audit("check", log, "--config", tmp_path / rules).code == 0


@pytest.mark.parametrize(
    "case", [case for case in EXPECTED["files"] if case["path"].endswith("l")], ids=lambda c: c["path"]
)
def test_the_compatibility_profile_answers_as_the_reference(case: dict[str, Any]) -> None:
    """But for the exit code, which says what was found."""
    found = audit("check", VECTORS / case["path"], "--profile", "compat", "--format", "json")
    assert {key: found.json[key] for key in ("summary", "findings")} == case["result"]
    assert found.code == (0 if case["result"]["summary"]["passed"] else 1)


def test_the_compatibility_profile_has_its_rules(tmp_path: Path) -> None:
    """From the same kind of file."""
    log = VECTORS / "examples/secret_to_net_log.jsonl"
    assert audit("check", log, "--profile", "compat").code == 1
    assert (
        audit(
            "check", log, "--profile", "compat", "--config", VECTORS / "examples/audit_config_example.yaml"
        ).code
        == 1
    )
    (tmp_path / "off.yaml").write_text("rules: [{id: R3, enabled: false}]")
    assert audit("check", log, "--profile", "compat", "--config", tmp_path / "off.yaml").code == 0


def test_a_log_that_is_none_is_refused_with_its_line(tmp_path: Path) -> None:
    """Without a traceback and without its text."""
    log = written(tmp_path / "a.jsonl", GOOD)
    log.write_bytes(log.read_bytes() + b'{"id": "SECRET"}\n')
    for command in (("check", log), ("chain", log, "root")):
        result = audit(*command)
        assert (result.code, result.out) == (1, "")
        assert result.err.startswith(
            "memoflow: Line 4: The causal record is missing required field(s): timestamp"
        )
        assert "SECRET" not in result.err


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("r.json", "{", "is refused"),
        ("r.yaml", "a: [", "no YAML document"),
        ("r.yaml", "rule: []", "unknown keys: rule"),
        ("r.yaml", "rules: [{id: CYCLES}]", "There is no rule 'CYCLES'"),
    ],
)
def test_rules_that_are_none_are_wrong_usage(tmp_path: Path, name: str, content: str, words: str) -> None:
    """They are wrong whatever the log holds."""
    (tmp_path / name).write_text(content)
    result = audit("check", written(tmp_path / "a.jsonl", GOOD), "--config", tmp_path / name)
    assert result.code == 2
    assert words in " ".join(result.err.replace("│", " ").split())


@pytest.mark.parametrize(
    "args",
    [
        ("check",),
        ("check", "gone.jsonl"),
        ("check", "."),
        ("check", __file__, "--config", "gone.yaml"),
        ("check", __file__, "--profile", "loose"),
        ("check", __file__, "--format", "xml"),
        ("chain", __file__),
        ("chain", "gone.jsonl", "a"),
    ],
)
def test_wrong_usage(args: tuple[str, ...]) -> None:
    """Is exit code 2, without a traceback."""
    assert audit(*args).code == 2


def test_a_chain_is_shown_from_its_root(tmp_path: Path) -> None:
    """And one that does not begin with a root says so with exit code 1."""
    log = written(tmp_path / "a.jsonl", [*GOOD, rec("lost", "gone", at=9)])
    shown = audit("chain", log, "act")
    assert shown.code == 0
    assert [line[:2] for line in shown.lines[1:]] == [
        ["root", "human:alice"],
        ["yes", "human:alice"],
        ["act", "agent:support"],
    ]
    lost = audit("chain", log, "lost")
    assert lost.code == 1
    assert lost.out.endswith("The parent 'gone' of 'lost' is not in the log.\n")
    assert audit("chain", log, "nobody").code == 1


def test_a_chain_as_json(tmp_path: Path) -> None:
    """Records as they stand in the log."""
    log = written(tmp_path / "a.jsonl", GOOD)
    shown = audit("chain", log, "act", "--json").json
    assert shown["chain"] == [json.loads(line) for line in log.read_text().splitlines()]
    assert (shown["target_id"], shown["has_gap"], shown["gap_note"]) == ("act", False, None)


def test_ids_cannot_move_the_cursor(tmp_path: Path) -> None:
    """What is printed of a log of the compat form is printable."""
    path = tmp_path / "a.jsonl"
    raw = {
        "id": "\x1b[2J",
        "timestamp": 1,
        "actor": {"pid": 1, "uid": 1},
        "action": "x",
        "object": None,
        "permitted_by": "\x1b",
    }
    path.write_text(json.dumps(raw) + "\n")
    for command in (("check", path), ("chain", path, "\x1b[2J"), ("check", path, "--format", "markdown")):
        shown = audit(*command, "--profile", "compat")
        assert "\x1b" not in shown.out + shown.err


# What a ledger holds


@pytest.fixture
def recorded(sqlite_url: str) -> Cli:
    """A run with one tool call on a ledger."""

    @tool(version="v1", effect="read_only")
    def look(n: int) -> int:
        """Look."""
        return n

    with Runtime.open(sqlite_url, namespace="tests") as runtime:
        llm = OpenAIResponses(SimulatedProvider([call("look", {"n": 1}), text("done")]).client())
        budget = Budget(total_tokens=5_000, tool_calls=1)
        runtime.budgets.put("acme", Budget(total_tokens=100_000))

        @runtime.activity(version="v1", budget="acme")
        def answer() -> str:
            request = {"model": "any", "input": "Look."}
            further = {"continuation_budgets": [budget], "replay_key": "turn", "budget": budget}
            return str(llm.run_with_tools(request, [look], **further).response.output_text)  # type: ignore[arg-type]

        answer.run(workflow_id="ticket-42", run_id="1")
    return Cli(sqlite_url)


def test_a_run_is_audited_by_what_the_ledger_says(recorded: Cli) -> None:
    """By workflow and run, or all runs of a workflow; nothing is found in what memoflow did itself."""
    for run in (("ticket-42", "1"), ("ticket-42",)):
        result = recorded.ok("audit", "run", *run, "--format", "json").json
        assert result["summary"] == {"total": 4, "ok": 4, "warnings": 0, "failures": 0, "passed": True}
        assert result["file"] == "/".join(run)


def test_a_run_can_be_audited_by_other_rules(recorded: Cli, tmp_path: Path) -> None:
    """A rule that a call breaks makes the command fail; a file that holds none is wrong usage."""
    rules = tmp_path / "rules.json"
    classes = [{"class": "DATA_EGRESS", "tool": "look"}]
    rules.write_text(json.dumps({"strict": {"classes": classes}}))
    result = recorded("audit", "run", "ticket-42", "1", "--config", str(rules))
    assert (result.code, "APPROVAL_MISSING" in result.out) == (1, True)
    rules.write_text("[]")
    assert recorded("audit", "run", "ticket-42", "1", "--config", str(rules)).code == 2


def test_a_run_is_exported_as_a_log_that_can_be_checked(recorded: Cli, tmp_path: Path) -> None:
    """The same records to a file and to standard output; a file that is there is not written over."""
    out = tmp_path / "run.jsonl"
    assert "4 records" in recorded.ok("audit", "export", "ticket-42", "1", "--out", str(out)).out
    assert recorded.ok("audit", "export", "ticket-42", "1").out == out.read_text()
    again = recorded("audit", "export", "ticket-42", "1", "--out", str(out))
    assert (again.code, "cannot be created" in again.err) == (2, True)
    assert len(out.read_text().splitlines()) == 4
    rules = tmp_path / "rules.json"
    permissions = ["budget:*", "tool:*"]
    rules.write_text(json.dumps({"strict": {"permissions": permissions}}))
    recorded.ok("audit", "check", str(out), "--config", str(rules), database=False)


def test_a_run_that_is_not_there_is_refused(recorded: Cli, tmp_path: Path) -> None:
    """Exit code 1, a sentence, and no file left behind."""
    out = tmp_path / "run.jsonl"
    for args in (("run", "none"), ("export", "none"), ("export", "none", "--out", str(out))):
        result = recorded("audit", *args)
        assert (result.code, "There is no run 'none'" in result.err) == (1, True)
    assert not out.exists()
