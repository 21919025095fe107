"""``memoflow reconcile``."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memoflow import KeyRing, Runtime, tool
from memoflow.budget import Budget, Money
from memoflow.canonical import Digester
from memoflow.errors import LeaseLost, OutcomeUnknown
from memoflow.ledger.verify import verify
from memoflow.openai import OpenAIResponses
from memoflow.pricing import Price, PriceBook
from memoflow.testing import SimulatedProvider, call, calls, stream_ends_early, text
from tests.cli._run import Cli
from tests.ledger._calls import LEASE, Ledger, ask, effect, open_ledger

WHY = ("--reason", "asked the provider", "--actor", "ann")


@pytest.fixture
def ledger(sqlite_url: str) -> Iterator[Ledger]:
    """A ledger with one account; when the test is over, every fact in it must hold."""
    with open_ledger(sqlite_url) as opened:
        opened.put("acme", Budget(total_tokens=1_000, cost=Money.of(1)))
        yield opened
        assert opened.read(verify) == []


@pytest.fixture
def cli(ledger: Ledger, sqlite_url: str) -> Cli:
    """The command line on it."""
    return Cli(sqlite_url)


WANTED = ask(total_tokens=100, input_tokens=30, output_tokens=70, cost=500_000_000)


def test_the_queue_is_listed_with_what_it_holds(cli: Cli, ledger: Ledger) -> None:
    """Unknown calls and effects, and the exposure of each account."""
    id = ledger.unknown(WANTED)
    queue = cli.ok("reconcile", "list", "--json").json
    assert [item["id"] for item in queue["invocations"]] == [id]
    (exposure,) = queue["exposures"]
    assert (exposure["account"], exposure["invocations"], exposure["currency"]) == ("acme", 1, "USD")
    assert (exposure["amounts"]["total_tokens"], exposure["amounts"]["cost"]) == (100, "0.5")
    out = cli.ok("reconcile", "list").out
    assert id in out
    assert "READ_TIMEOUT" in out
    assert "cost 0.5 USD" in out
    assert "HELD BY THEM" in out


def test_settling_by_figures_from_the_command_line(cli: Cli, ledger: Ledger) -> None:
    """Each figure has an option, and the decision is shown with what it charged."""
    id = ledger.unknown(WANTED)
    decision = cli.ok(
        *("reconcile", "settle", id, "--input-tokens", "5", "--output-tokens", "7", "--cost", "0.01"),
        *("--evidence", "invoice 7", "--json", *WHY),
    ).json
    assert (decision["kind"], decision["target_id"], decision["verdict"]) == ("invocation", id, "settle")
    assert (decision["actor"], decision["reason"]) == ("ann", "asked the provider")
    assert decision["evidence_digest"] == Digester().bytes(b"invoice 7")
    assert decision["actual"] == {
        "total_tokens": 12,
        "input_tokens": 5,
        "output_tokens": 7,
        "model_calls": 1,
        "tool_calls": 0,
        "cost": "0.01",
        "wall_clock_ms": 0,
    }
    assert cli.ok("reconcile", "list").out == "Nothing is unknown.\n"


def test_settling_without_figures_charges_all_that_was_reserved(cli: Cli, ledger: Ledger) -> None:
    """And says how much that was."""
    id = ledger.unknown(WANTED)
    assert "charged total_tokens 100, input_tokens 30" in cli.ok("reconcile", "settle", id, *WHY).out
    assert ledger.account("acme").settled.total_tokens == 100


@pytest.mark.parametrize("source", ["text", "file", "stdin", "escaped"])
def test_evidence_comes_as_text_or_from_a_file(cli: Cli, ledger: Ledger, tmp_path: Path, source: str) -> None:
    """Only its digest is kept, whatever bytes it has."""
    id = ledger.unknown(WANTED)
    data = {"text": b"ticket 7", "file": b"\x00\xff", "stdin": b"from a pipe", "escaped": b"@home"}[source]
    (tmp_path / "log").write_bytes(data)
    given = {"text": "ticket 7", "file": f"@{tmp_path / 'log'}", "stdin": "@-", "escaped": "@@home"}[source]
    decision = cli.ok("reconcile", "release", id, "--evidence", given, "--json", *WHY, input=data).json
    assert decision["evidence_digest"] == Digester().bytes(data)
    assert decision["actual"] is None
    assert ledger.account("acme").used.total_tokens == 0


def test_releasing_needs_evidence_that_can_be_read(cli: Cli, ledger: Ledger, tmp_path: Path) -> None:
    """A hold is not returned on somebody's word alone."""
    id = ledger.unknown(WANTED)
    assert cli("reconcile", "release", id, *WHY).code == 2
    missing = cli("reconcile", "release", id, "--evidence", f"@{tmp_path / 'none'}", *WHY)
    assert missing.code == 2
    assert "cannot be read" in missing.err
    assert ledger.account("acme").unknown.total_tokens == 100


def test_a_decision_id_makes_repeating_harmless(cli: Cli, ledger: Ledger) -> None:
    """The same command twice is one decision; another verdict under it is refused."""
    id, decision_id = ledger.unknown(WANTED), str(uuid.uuid4())
    settle = ("reconcile", "settle", id, "--total-tokens", "9", "--decision-id", decision_id, *WHY)
    assert cli.ok(*settle).out == cli.ok(*settle).out
    other = cli("reconcile", "release", id, "--evidence", "x", "--decision-id", decision_id, *WHY)
    assert (other.code, other.out) == (1, "")
    assert decision_id in other.err
    assert ledger.account("acme").settled.total_tokens == 9


def test_figures_that_contradict_each_other_are_refused(cli: Cli, ledger: Ledger) -> None:
    """They are wrong whatever the ledger holds: wrong usage."""
    id = ledger.unknown(WANTED)
    result = cli("reconcile", "settle", id, "--input-tokens", "5", *WHY)
    assert (result.code, result.out) == (2, "")
    assert "together" in result.err


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (("--reason", ""), "reason must have 1 to 1000 characters"),
        (("--actor", "a\nb"), "control characters"),
        (("--decision-id", "seven"), "UUID"),
        (("--cost", "1,5"), "decimal number"),
        (("--currency", "euro"), "three capital letters"),
        (("--total-tokens", "-5"), "whole number"),
    ],
)
def test_a_decision_with_values_that_cannot_be_is_wrong_usage(
    cli: Cli, ledger: Ledger, options: tuple[str, str], word: str
) -> None:
    """Nothing is decided."""
    id = ledger.unknown(WANTED)
    result = cli("reconcile", "settle", id, *WHY, *options)
    assert (result.code, result.out) == (2, "")
    assert word in result.err
    assert ledger.account("acme").unknown.total_tokens == 100


@pytest.mark.parametrize("verdict", ["settle", "release"])
def test_an_effect_is_not_settled_or_released(cli: Cli, ledger: Ledger, verdict: str) -> None:
    """The refusal says what the id is of, and names the two decisions there are about it."""
    id = unknown_effect(ledger)
    result = cli("reconcile", verdict, id, "--evidence", "x", *WHY)
    assert (result.code, result.out) == (1, "")
    assert f"{id} is a tool effect" in result.err
    assert f"`memoflow reconcile happened {id}` or `memoflow reconcile did-not-happen {id}`" in result.err


@pytest.mark.parametrize("verdict", ["happened", "did-not-happen"])
def test_an_invocation_is_not_said_to_have_happened(cli: Cli, ledger: Ledger, verdict: str) -> None:
    """The other way round."""
    id = ledger.unknown(WANTED)
    result = cli("reconcile", verdict, id, "--evidence", "x", *WHY)
    assert (result.code, result.out) == (1, "")
    assert f"{id} is an invocation" in result.err
    assert f"settle {id}" in result.err
    assert f"release {id}" in result.err


@pytest.mark.parametrize("verdict", ["settle", "happened"])
def test_a_decision_on_what_is_not_there_says_where_to_look(cli: Cli, verdict: str) -> None:
    """By a command that lists what was meant."""
    result = cli("reconcile", verdict, "no-such-id", *WHY)
    assert result.code == 1
    listing = "invocations" if verdict == "settle" else "effects"
    assert f"`memoflow {listing} list`" in result.err


def test_a_case_is_shown_with_decisions_and_late_writes(cli: Cli, ledger: Ledger) -> None:
    """What a lost attempt wanted to say may be what tells."""
    fence = ledger.claim()
    id = ledger.start(fence, WANTED)
    ledger.now += LEASE
    ledger.claim()
    with pytest.raises(LeaseLost):
        ledger.settle(fence, id, 12, 8)
    cli.ok("reconcile", "settle", id, "--input-tokens", "12", "--output-tokens", "8", *WHY)
    case = cli.ok("reconcile", "show", id, "--json").json
    assert case["invocation"]["state"] == "FAILED"
    assert case["effect"] is None
    assert [one["verdict"] for one in case["decisions"]] == ["settle"]
    (late,) = case["evidence"]
    assert (late["event"], late["input_tokens"], late["output_tokens"]) == ("settle", 12, 8)
    out = cli.ok("reconcile", "show", id).out
    assert "DECIDED_SPENT" in out
    assert "asked the provider" in out
    assert "LATE WRITE OF ATTEMPT" in out


def unknown_effect(ledger: Ledger) -> str:
    """An effect that a lost attempt left open."""
    fence = ledger.claim()
    id = ledger.start(fence, WANTED)
    new = effect(id)
    ledger.settle(fence, id, 1, 1, effects=(new,))
    ledger.end(fence)
    return new.id


def test_an_effect_is_decided_without_keys_where_no_result_is_given(cli: Cli, ledger: Ledger) -> None:
    """Either way the queue is empty afterwards."""
    id = unknown_effect(ledger)
    assert [item["id"] for item in cli.ok("reconcile", "list", "--json").json["effects"]] == [id]
    decision = cli.ok("reconcile", "happened", id, "--json", *WHY).json
    assert (decision["kind"], decision["verdict"]) == ("effect", "happened")
    assert cli.ok("reconcile", "list", "--json").json["effects"] == []
    assert cli.ok("reconcile", "show", id, "--json").json["effect"]["state"] == "DONE"


def test_an_effect_that_did_not_happen(cli: Cli, ledger: Ledger) -> None:
    """It may run again."""
    id = unknown_effect(ledger)
    out = cli.ok("reconcile", "did-not-happen", id, "--evidence", "the bank has no record", *WHY).out
    assert f"did_not_happen effect {id}" in out
    assert cli.ok("reconcile", "show", id, "--json").json["effect"]["reason"] == "NOT_PERFORMED"


def test_a_result_needs_the_keys(cli: Cli, ledger: Ledger) -> None:
    """It is kept encrypted or not at all; the refusal names the setting."""
    id = unknown_effect(ledger)
    result = cli("reconcile", "happened", id, "--result", "refunded", *WHY)
    assert result.code == 1
    assert "MEMOFLOW_OUTPUT_KEYS" in result.err
    assert cli.ok("reconcile", "show", id, "--json").json["effect"]["state"] == "STARTED"


def test_a_result_that_is_no_text_is_wrong_usage(cli: Cli, ledger: Ledger, tmp_path: Path) -> None:
    """The model is given text."""
    (tmp_path / "image").write_bytes(b"\xff\xd8")
    result = cli("reconcile", "happened", "id", "--result", f"@{tmp_path / 'image'}", *WHY)
    assert result.code == 2
    assert "UTF-8" in result.err


def test_writing_off_says_what_it_charged(cli: Cli, ledger: Ledger) -> None:
    """By age; nothing is old enough is not an error."""
    ledger.now = 1_600_000_000_000_000
    id = ledger.unknown(WANTED)
    assert cli.ok("reconcile", "write-off", "--older-than", "999999d", *WHY).out == "Nothing is old enough.\n"
    (decision,) = cli.ok("reconcile", "write-off", "--older-than", "30d", "--json", *WHY).json["items"]
    assert (decision["target_id"], decision["actual"]["total_tokens"]) == (id, 100)


# With keys and a provider


class World:
    """A runtime whose keys the command line knows by the environment."""

    def __init__(
        self,
        url: str,
        monkeypatch: pytest.MonkeyPatch,
        *script: Any,
        prices: PriceBook | None = None,
        **options: Any,
    ) -> None:
        keys = KeyRing.generate()
        monkeypatch.setenv("MEMOFLOW_OUTPUT_KEYS", keys.export())
        self.rt = Runtime.open(url, namespace="tests", keys=keys, prices=prices)
        self.rt.budgets.put("acme", Budget(total_tokens=10_000))
        self.provider = SimulatedProvider(list(script), **options)
        self.llm = OpenAIResponses(self.provider.client())
        monkeypatch.setattr("memoflow.openai._retriever.retriever", lambda: self.llm.retrieve)

    def lose(self) -> None:
        """Stream a reply that breaks off."""

        @self.rt.activity(version="v1", budget="acme")
        def answer() -> None:
            request = {"model": "gpt-test", "input": "Why?", "max_output_tokens": 64}
            with self.llm.stream(request, replay_key="turn") as stream:
                list(stream)
                assert stream.result

        with pytest.raises(OutcomeUnknown):
            answer.run(workflow_id="w", run_id="r")


def test_auto_settles_by_the_provider_s_word(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stored reply is proof; what was found is listed, and exit code 0 says that nothing is left."""
    world = World(sqlite_url, monkeypatch, stream_ends_early(text("Because.")), store_interrupted=True)
    world.lose()
    (item,) = Cli(sqlite_url).ok("reconcile", "auto", "--json").json["items"]
    assert item["left"] is None
    assert item["decision"]["actual"]["total_tokens"] == world.provider.billed.total
    assert "nothing the provider could be asked" in Cli(sqlite_url).ok("reconcile", "auto").out
    world.rt.close()


def test_auto_says_what_is_left(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 1: somebody has to look."""
    world = World(sqlite_url, monkeypatch, stream_ends_early(text("Because.")))
    world.lose()
    result = Cli(sqlite_url)("reconcile", "auto")
    assert result.code == 1
    assert "NOT_FOUND" in result.out
    world.rt.close()


@pytest.mark.parametrize("unknown", ["invocation", "effect"])
def test_auto_tells_what_it_could_not_ask_for(
    cli: Cli, ledger: Ledger, monkeypatch: pytest.MonkeyPatch, unknown: str
) -> None:
    """What has no reply id, and an effect, is still unknown afterwards: exit code 1, and where to look."""
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    if unknown == "invocation":
        ledger.unknown(WANTED)
    else:
        unknown_effect(ledger)
    result = cli("reconcile", "auto")
    assert result.code == 1
    said = {"invocation": "1 invocation has no known reply id", "effect": "1 tool effect waits for you"}
    assert f"{said[unknown]}: `memoflow reconcile list`." in result.out
    assert cli("reconcile", "auto", "--json").code == 1


def test_auto_tells_where_no_price_was_known(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole cost that was reserved is charged then, and that is said."""
    prices = PriceBook({"gpt-test": Price(input=1, output=2)})
    world = World(
        sqlite_url, monkeypatch, stream_ends_early(text("a")), prices=prices, store_interrupted=True
    )
    world.lose()
    assert "No price is known for invocation" in Cli(sqlite_url).ok("reconcile", "auto").out
    world.rt.close()


def test_auto_needs_a_key_of_the_provider(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without one it says which variable is missing."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_ADMIN_KEY", raising=False)
    result = cli("reconcile", "auto")
    assert result.code == 1
    assert "OPENAI_API_KEY" in result.err


def test_a_result_given_on_the_command_line_reaches_the_model(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it is, sealed with the same keys under the same place as a tool's own result."""
    world = World(sqlite_url, monkeypatch, calls(call("refund", {"cents": 5})), text("Done."))

    @tool(version="v1", effect="at_most_once")
    def refund(cents: int) -> str:
        """Refund."""
        raise OSError("the line went dead")

    @world.rt.activity(version="v1", budget="acme")
    def pay() -> str:
        return world.llm.run_with_tools(
            {"model": "gpt-test", "input": "Pay"},
            tools=[refund],
            budget=Budget(total_tokens=2_000, tool_calls=1),
            continuation_budgets=[Budget(total_tokens=2_000)],
            replay_key="turn",
        ).response.output_text

    with pytest.raises(OSError, match="dead"):
        pay.run(workflow_id="w", run_id="r")
    cli = Cli(sqlite_url)
    (item,) = cli.ok("reconcile", "list", "--json").json["effects"]
    cli.ok("reconcile", "happened", item["id"], "--result", "refunded 5", *WHY)
    assert pay.run(workflow_id="w", run_id="r") == "Done."
    assert b"refunded 5" in world.provider.requests[-1].body
    world.rt.close()


def test_the_key_file_beside_an_sqlite_ledger_is_found(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ledger that made its own key needs no setting."""
    world = World(sqlite_url, monkeypatch, stream_ends_early(text("a")), store_interrupted=True)
    monkeypatch.delenv("MEMOFLOW_OUTPUT_KEYS")
    world.rt.close()
    world.rt = Runtime.open(sqlite_url, namespace="tests")
    world.lose()
    (item,) = Cli(sqlite_url).ok("reconcile", "auto", "--json").json["items"]
    assert item["left"] is None
    world.rt.close()
