"""``verify`` as a stranger runs it: exit codes, sentences, and what it takes from a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from certification.live import verify
from certification.live.evidence import Evidence, render, seal
from certification.live.verifier import MAX_BYTES, read_evidence
from tests.certification.live._runs import edited
from tests.certification.live.test_source import clone, from_clone

__all__ = ["clone"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Where evidence lies."""
    return tmp_path / "certification.json"


def run(*arguments: object) -> int:
    """The exit code of the program."""
    return verify.main([str(argument) for argument in arguments])


def test_evidence_that_holds(
    live: Evidence, file: Path, clone: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 0, and on the screen what was certified."""
    named = from_clone(live, clone)
    file.write_bytes(render(named))
    assert run(file, "--repository", clone) == 0
    out, err = capsys.readouterr()
    assert err == ""
    lines = out.splitlines()
    assert lines[0].startswith(f"{named.provider} {named.model}, live; SDK {named.versions.sdk}, memoflow ")
    assert lines[2] == f"commit {named.source.commit}"
    assert [line.split()[0] for line in lines[3:8]] == [
        "response",
        "stream",
        "tools",
        "tools",
        "cancellation",
    ]
    assert "4000 held as unknown, of 20000" in lines[8]
    assert lines[-2:] == [named.digest, f"{file}: verified."]


def test_the_commit_is_looked_up_here_by_default(
    live: Evidence,
    file: Path,
    clone: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In the checkout of the program."""
    monkeypatch.setattr(verify, "ROOT", clone)
    file.write_bytes(render(from_clone(live, clone)))
    assert run(file) == 0
    file.write_bytes(render(live))
    assert run(file) == 1
    assert f"Found: The commit {'a' * 40} does not exist" in capsys.readouterr().err


def test_without_a_repository(
    live: Evidence, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is refused, exit code 2, unless the check is left out; and then that is said."""
    file.write_bytes(render(live))
    assert run(file, "--repository", tmp_path) == 2
    assert capsys.readouterr().err == (
        f"Refused: {tmp_path} is not a repository that git can read, so the commit cannot be looked up. Name "
        "a clone with --repository DIR, or leave that check out with --no-repository.\n"
    )
    assert run(file, "--no-repository") == 0
    assert f"commit {'a' * 40} (not looked up)" in capsys.readouterr().out


def test_simulated_evidence_is_not_live(
    evidence: Evidence, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 1, unless simulated evidence is what is wanted."""
    file.write_bytes(render(evidence))
    assert run(file, "--no-repository") == 1
    assert capsys.readouterr() == (
        "",
        "Found: The run was simulated: its requests did not go to the provider, so it is no live evidence "
        f"(--allow-simulated checks the rest of it).\n{file}: NOT verified, 1 found.\n",
    )
    assert run(file, "--no-repository", "--allow-simulated") == 0
    assert ", simulated; SDK " in capsys.readouterr().out


def test_live_evidence_needs_no_permission(live: Evidence, file: Path) -> None:
    """Allowing simulated evidence does not forbid live one."""
    file.write_bytes(render(live))
    assert run(file, "--no-repository", "--allow-simulated") == 0


def found(evidence: Evidence, file: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The findings in evidence that is written as it is."""
    file.write_bytes(render(evidence))
    assert run(file, "--no-repository", "--allow-simulated") == 1
    *lines, last = capsys.readouterr().err.splitlines()
    assert last == f"{file}: NOT verified, {len(lines)} found."
    assert all(line.startswith("Found: ") for line in lines)
    return [line.removeprefix("Found: ") for line in lines]


def test_another_digest(live: Evidence, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Both are named."""
    changed = live.model_copy(update={"model": "another-model"})
    assert found(changed, file, capsys) == [
        f"The digest is {live.digest}; what it stands for has {seal(changed).digest}."
    ]


EDITS: list[tuple[Any, str]] = [
    (lambda d: d.update(simulated=True), "simulated is true, and no requests went elsewhere"),
    (lambda d: _wire(d, 0, host="elsewhere"), "simulated is false, and some requests went elsewhere"),
    (lambda d: _wire(d, 0, certificate=None), "has no certificate of the server, which HTTPS always shows."),
    (lambda d: _wire(d, 0, retry_count=1), "response, call 1: the SDK reported 1 repetitions of its own"),
    (lambda d: _wire(d, 0, retry_count=None), "response, call 1: the SDK reported None repetitions"),
    (lambda d: _wire(d, 0, status=500), "response, call 1: the provider answered with status 500."),
    (lambda d: _wire(d, 0, streamed=True), "response, call 1: the request was streamed."),
    (lambda d: _wire(d, 1, streamed=False), "stream, call 1: the request was not streamed."),
    (lambda d: _wire(d, 0, ended=False), "response, call 1: its reply did not end, and had to."),
    (lambda d: _wire(d, 3, ended=True), "cancellation, call 1: its reply ended, and had not to."),
    (lambda d: _wire(d, 0, output_cap=0), "response, call 1: its request had no output cap."),
    (lambda d: _wire(d, 0, output_cap=1), "tokens; its output cap was 1."),
    (lambda d: _wire(d, 0, output_cap=4000), "its request had the output cap 4000, not 3"),
    (lambda d: d["cases"][0]["calls"][0]["reserved"].update(total_tokens=9), "it reserved 9 tokens, which"),
    (lambda d: d["cases"][0]["calls"][0]["reserved"].update(model_calls=2), "it reserved 2 model calls;"),
    (lambda d: _wire(d, 0, usage=None), "response, call 1: the ledger has another usage than the wire."),
    (lambda d: _usage(d, 0, reasoning_tokens=900_000), "more of its output was reasoning than there was."),
    (lambda d: _usage(d, 0, cached_input_tokens=900_000), "more of its input was cached than there was."),
    (lambda d: _usage(d, 0, output_tokens=0), "its usage says that something was made of nothing"),
    (lambda d: _usage(d, 0, input_tokens=5_000), "tokens; 4000 were reserved."),
    (lambda d: _call(d, 0, state="FAILED"), "it is FAILED / SETTLED, and must be SUCCEEDED / SETTLED."),
    (lambda d: _call(d, 3, reservation="RELEASED"), "and must be OUTCOME_UNKNOWN / RECONCILE (CANCELLED)."),
    (lambda d: _call(d, 0, finish="tool_calls"), "it finished with tool_calls, and must with stop "),
    (lambda d: _call(d, 0, usage=None), "response, call 1: it has no usage."),
    (lambda d: _call(d, 0, id=d["cases"][1]["calls"][0]["id"]), "The invocation 0"),
    (lambda d: d["cases"][2]["effects"].clear(), "tools: the executions of tools are []; each call of one"),
    (lambda d: d["cases"][2]["calls"].pop(), "tools: the calls made are 1, those of the boundary 2."),
    (lambda d: d["cases"].pop(), "The cases are response, stream, tools; a run has response, "),
    (lambda d: d["balances"].pop(), "The accounts are live, live/response, live/stream, live/tools; a run"),
    (lambda d: d["balances"][1].update(head="0" * 64), "the chain of its journal leads to "),
    (lambda d: d["balances"][0]["limits"].update(model_calls=6), "it allows 6 model calls; the bound"),
    (lambda d: d["balances"][0]["limits"].update(total_tokens=9), "it allows 9 tokens; its calls reserved "),
    (lambda d: d["balances"][0]["limits"].update(total_tokens=9), "brought it to 4000 total_tokens of 9."),
    (lambda d: d["balances"][0]["settled"].update(cost=1), "settled cost is 1; its journal says 0."),
    (lambda d: d["balances"][0]["held"].update(cost=1), "something is still held; a run that is over holds"),
    (lambda d: d["balances"][4]["unknown"].update(cost=1), "unknown cost is 0; those below it have 1."),
    (lambda d: d["balances"][1]["journal"].pop(), "its journal does not say reserve, settle, of i"),
    (lambda d: d["balances"][1]["journal"][0].update(seq=7), "journal row 1 has the number 7."),
    (lambda d: d["balances"][1]["journal"][0]["held"].update(cost=1), "held cost is 1; by the call it is 0."),
    (
        lambda d: d["balances"][1]["journal"][1].update(policy_version=2),
        "under the limits that were set first.",
    ),
    (lambda d: d["balances"][1].update(id=d["balances"][2]["id"]), "Two accounts have one balance."),
    (lambda d: d["cases"][0].update(duration_ms=0) or _slow(d), " ms; its case took 0."),
]


def _call(document: Any, case: int, **changes: Any) -> None:
    document["cases"][case]["calls"][0].update(changes)


def _wire(document: Any, case: int, **changes: Any) -> None:
    document["cases"][case]["calls"][0]["wire"].update(changes)


def _usage(document: Any, case: int, **changes: Any) -> None:
    call = document["cases"][case]["calls"][0]
    call["usage"].update(changes)
    call["wire"]["usage"].update(changes)


def _slow(document: Any) -> None:
    document["balances"][1]["journal"][1]["settled"]["wall_clock_ms"] = 7


@pytest.mark.parametrize(("change", "says"), EDITS, ids=[says[:50] for _, says in EDITS])
def test_what_is_found_under_a_digest_made_anew(
    change: Any, says: str, live: Evidence, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each rule finds what breaks it, and says so with the figures."""
    assert any(says in line for line in found(edited(live, change), file, capsys))


def test_another_providers_names(live: Evidence, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Evidence of one provider is not evidence of the other."""
    other = "anthropic" if live.provider == "openai" else "openai"
    lines = found(edited(live, lambda d: d.update(provider=other)), file, capsys)
    assert lines[0] == f"The API {live.api} is not one of {other}."
    assert lines[1] == f"A run of {other} has requests to the host of another provider."


HUGE = "9" * 5_000
CRAFTED: list[tuple[bytes, str]] = [
    (b"", "is not one JSON document in UTF-8"),
    (b"\xff\xfe{}", "is not one JSON document in UTF-8"),
    (b"{}", "format: Field required."),
    (b"[]", "The document: "),
    (b"null", "The document: "),
    (b'{"format": NaN}', "holds NaN, an infinity, or a number too large for a double"),
    (b'{"format": 1e999}', "holds NaN, an infinity, or a number too large for a double"),
    (b'{"format": -Infinity}', "holds NaN, an infinity"),
    (f'{{"format": {HUGE}}}'.encode(), "holds a number with more digits than allowed"),
    (b'{"a": 1, "a": 1}', "holds an object with the same key twice"),
    (b'{"a": "\\ud800"}', "holds a lone surrogate"),
    (b"[" * 13 + b"]" * 13, "is nested deeper than allowed"),
    (b"[" * 100_000 + b"]" * 100_000, "is nested deeper than allowed"),
    (b" " * (MAX_BYTES + 1), "is larger than allowed"),
]


@pytest.mark.parametrize(("data", "says"), CRAFTED, ids=[str(n) for n in range(len(CRAFTED))])
def test_files_that_are_crafted(
    data: bytes, says: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """None of them ends the program otherwise than with exit code 1 and a sentence."""
    file.write_bytes(data)
    assert run(file, "--no-repository") == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert says in err


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("cases", 0, "duration_ms"), True),
        (("cases", 0, "duration_ms"), -1),
        (("cases", 0, "duration_ms"), 10**16),
        (("cases", 0, "calls", 0, "usage", "input_tokens"), -5),
        (("cases", 0, "calls", 0, "usage", "input_tokens"), True),
        (("cases", 0, "calls", 0, "usage", "input_tokens"), "5"),
        (("cases", 0, "calls", 0, "usage", "input_tokens"), 5.0),
        (("simulated",), 0),
        (("simulated",), "false"),
        (("model",), "a model"),
        (("model",), "model\n"),
        (("model",), "m\N{CYRILLIC SMALL LETTER O}del"),
        (("source", "commit"), "A" * 40),
        (("source", "commit"), "a" * 40 + "\n"),
        (("source", "commit"), "\N{FULLWIDTH DIGIT ONE}" * 40),
        (("versions", "sdk"), "1.\N{ARABIC-INDIC DIGIT ONE}"),
        (("versions", "sdk"), "1.0+free text"),
        (("cases", 0, "calls", 0, "wire", "host"), "api.\N{CYRILLIC SMALL LETTER O}penai.com"),
        (("cases", 0, "calls", 0, "wire", "response_id"), "resp_123"),
        (("digest",), "md5:" + "0" * 64),
    ],
    ids=repr,
)
def test_values_that_look_alike(
    place: tuple[Any, ...], value: Any, live: Evidence, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Truth values are no numbers, numbers no texts, and letters of other scripts no letters of a host."""
    document = json.loads(render(live))
    inner = document
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    file.write_text(json.dumps(document, indent=1) + "\n")
    assert run(file, "--no-repository") == 1
    where = ".".join(map(str, place))
    assert f"Found: {where}: " in capsys.readouterr().err


def test_what_a_file_says_does_not_reach_the_terminal(
    live: Evidence, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Names of its fields are shown escaped and short, and values not at all."""
    document = json.loads(render(live))
    document["\x1b[2J\N{BELL}" + "x" * 200] = "\x1b[31mvalue"
    file.write_text(json.dumps(document, indent=1) + "\n")
    assert run(file, "--no-repository") == 1
    err = capsys.readouterr().err
    assert err.replace("\n", "").isprintable()
    assert "value" not in err
    assert max(map(len, err.splitlines())) < 200


@pytest.mark.parametrize(
    "arguments",
    [[], ["--no-repository"], ["f", "--repository", "x", "--no-repository"], ["f", "g"], ["f", "--strict"]],
)
def test_wrong_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2."""
    with pytest.raises(SystemExit) as ended:
        verify.main(arguments)
    assert ended.value.code == 2
    assert capsys.readouterr().err


def test_a_file_that_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Missing, or a directory: exit code 2, since nothing was checked."""
    assert run(tmp_path / "none.json") == 2
    assert "cannot be read (No such file or directory). Name a file of evidence." in capsys.readouterr().err
    assert run(tmp_path) == 2
    assert "cannot be read (Is a directory)." in capsys.readouterr().err


def test_evidence_read_is_evidence_written(live: Evidence) -> None:
    """Nothing is lost on the way."""
    assert read_evidence(render(live)) == live
