"""The program that audits logs of growing length: its logs, its rows, and what its exit code says."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from certification.causal import program
from certification.causal.logs import LOGS
from certification.causal.program import RATIO, Row, main, measure
from memoflow.causal.jsonl import write_jsonl
from memoflow.causal.strict import audit_strict

ROW = Row("line", 100, 1.0, 50 << 20, 40 << 20, 20.0, 0)


@pytest.mark.parametrize("log", ["line", "turns"])
def test_what_is_measured_is_a_clean_log(log: str) -> None:
    """With all that the audit has to keep: it looks at every record and finds nothing."""
    assert audit_strict(LOGS[log](100)).to_dict()["summary"]["failures"] == 0
    assert len({record.id for record in LOGS[log](100)}) >= 100


def test_turns_have_everything_that_is_carried_along() -> None:
    """Joins, secrets and approvals."""
    records = list(LOGS["turns"](100))
    assert any(record.joins for record in records)
    assert any("/secrets/" in str(record.object) for record in records)
    assert any(record.action == "send" for record in records)


def test_a_cycle_is_one() -> None:
    """And every record in it fails."""
    result = audit_strict(LOGS["cycle"](50))
    assert result.failures > 50
    assert [finding.context for finding in result.findings if finding.code.endswith("-CYCLE")] == [
        {"records": 50}
    ]


@pytest.mark.parametrize("log", LOGS)
def test_a_row_is_of_the_whole_log(log: str, tmp_path: Path) -> None:
    """Read from its file."""
    with (tmp_path / "log").open("wb") as file:
        written = write_jsonl(LOGS[log](60), file)
    row = measure(log, str(tmp_path / "log"))
    assert (row.log, row.records, row.failures > 0) == (log, written, log == "cycle")
    assert row.peak_bytes >= row.base_bytes > 0


@pytest.mark.parametrize(("ratio", "code"), [(RATIO, 0), (RATIO + 0.1, 1)])
def test_the_exit_code_says_whether_time_was_linear(
    ratio: float,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """By the worst of the logs; the rows are kept."""

    def both(log: str, records: int) -> list[Row]:
        grown = ratio if log == "turns" else 10.0
        return [replace(ROW, log=log), replace(ROW, log=log, records=records, seconds=grown)]

    monkeypatch.setattr(program, "_both", both)
    assert main(["--records", "1000", "--out", str(tmp_path / "out.json")]) == code
    kept: dict[str, Any] = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert kept["ratios"] == {"line": 10.0, "turns": ratio, "cycle": 10.0}
    assert len(kept["rows"]) == 6
    assert f"ten times the records took {ratio:.1f} times the time" in capsys.readouterr().out


def test_each_log_is_audited_in_a_process_of_its_own() -> None:
    """So that its memory is its own; small here."""
    rows = list(program._both("line", 100))
    assert [(row.log, row.records, row.failures) for row in rows] == [("line", 10, 0), ("line", 100, 0)]
