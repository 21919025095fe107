"""Budgets at the gateway: what is refused before it is sent, and how a client is told."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import anthropic
import openai
import pytest

from memoflow import Budget, BudgetNotConfigured, Money
from memoflow.testing import SimulatedProvider, hold, text, usage
from tests.gateway._site import ACCOUNT, MODEL, wait_until
from tests.gateway.conftest import MakeSite

BODY: dict[str, Any] = {"model": MODEL, "input": "Hello?", "max_output_tokens": 50}
MESSAGES: dict[str, Any] = {
    "model": "claude-sonnet-5",
    "max_tokens": 50,
    "messages": [{"role": "user", "content": "Hello?"}],
}


def test_an_exhausted_budget_is_402_with_its_figures(make_site: MakeSite) -> None:
    """Nothing is sent; the SDK is told not to try again, and the figures are in the message and beside it."""
    site = make_site(SimulatedProvider(), Budget(total_tokens=10))
    with pytest.raises(openai.APIStatusError) as raised:
        site.openai(max_retries=2).responses.create(**BODY)
    error, response = raised.value, raised.value.response
    assert response.status_code == 402
    assert response.headers["x-should-retry"] == "false"
    assert "retry-after" not in response.headers
    told: Any = error.body
    assert (told["type"], told["code"]) == ("insufficient_quota", "budget_denied")
    assert told["memoflow"]["limit"] == 10
    assert told["memoflow"]["account"] == ACCOUNT
    assert "limit 10" in told["message"]
    assert site.provider.requests == []
    assert site.invocations == []


def test_anthropic_is_told_in_its_own_shape(make_site: MakeSite) -> None:
    """A refusal has the shape of the API that was asked."""
    site = make_site(SimulatedProvider(), Budget(total_tokens=10))
    with pytest.raises(anthropic.APIStatusError) as raised:
        site.anthropic(max_retries=2).messages.create(**MESSAGES)
    told: Any = raised.value.body
    assert raised.value.status_code == 402
    assert (told["type"], told["error"]["type"]) == ("error", "billing_error")
    assert told["error"]["memoflow"]["code"] == "budget_denied"


def test_a_period_that_resets_says_when(make_site: MakeSite) -> None:
    """Retry-After names the end of the period, because then the request fits."""
    site = make_site(SimulatedProvider([text("A.", usage=usage(400, 400), honour_cap=False)]))
    site.runtime.budgets.put("daily", Budget(total_tokens=1_000), period="day")
    with site.http(site.key("daily")) as client:
        assert client.post("/responses", json=BODY).status_code == 200
        wait_until(lambda: site.account("daily").settled.total_tokens == 800)
        refused = client.post("/responses", json={**BODY, "max_output_tokens": 300})
    assert refused.status_code == 402
    resets = site.account("daily").period_end
    assert resets is not None
    assert parsedate_to_datetime(refused.headers["retry-after"]) == datetime.fromtimestamp(
        resets // 1_000_000, UTC
    )


def test_what_never_fits_has_no_retry_after(make_site: MakeSite) -> None:
    """A request that is larger than the limit fits no period, so no time is named."""
    site = make_site(SimulatedProvider())
    site.runtime.budgets.put("daily", Budget(total_tokens=100), period="day")
    with site.http(site.key("daily")) as client:
        refused = client.post("/responses", json={**BODY, "max_output_tokens": 300})
    assert refused.status_code == 402
    assert "retry-after" not in refused.headers


def test_what_only_waits_for_others_is_429(make_site: MakeSite) -> None:
    """Where nothing but running requests is in the way, the client may try again by itself."""
    held = hold(text("A.", usage=usage(5, 5)))
    site = make_site(SimulatedProvider([held]), Budget(total_tokens=1_000))
    large = {**BODY, "max_output_tokens": 600}
    with site.http() as one, site.http() as two:
        thread = threading.Thread(target=lambda: one.post("/responses", json=large))
        thread.start()
        assert held.wait_entered()
        refused = two.post("/responses", json=large)
        held.release()
        thread.join()
        assert refused.status_code == 429
        assert refused.json()["error"]["code"] == "budget_busy"
        assert "x-should-retry" not in refused.headers
        assert "retry-after" not in refused.headers
        wait_until(lambda: site.account().held.total_tokens == 0)
        assert two.post("/responses", json=large).status_code == 200


def test_a_model_without_a_price_is_refused_where_money_is_limited(make_site: MakeSite) -> None:
    """An unpriced model is 402 before it is called; a priced one is charged exactly."""
    site = make_site(
        SimulatedProvider([text("A.", usage=usage(1_000, 10))]),
        Budget(cost=Money.of("1")),
        prices={"gpt-5-mini": ("1", "10")},
    )
    with site.http() as client:
        refused = client.post("/responses", json={**BODY, "model": "gpt-unknown"})
        assert refused.status_code == 402
        assert refused.json()["error"]["code"] == "price_unknown"
        reply = client.post("/responses", json=BODY)
    assert reply.status_code == 200
    assert reply.headers["memoflow-currency"] == "USD"
    assert float(reply.headers["memoflow-remaining-cost"]) < 1
    assert site.settled().cost == 1_000 * 1_000 + 10 * 10_000


def test_a_missing_account_is_a_refusal(make_site: MakeSite) -> None:
    """A key cannot be made for an account that does not exist."""
    site = make_site(SimulatedProvider())
    with pytest.raises(BudgetNotConfigured):
        site.key("nobody")


def test_a_closed_account_is_refused(make_site: MakeSite) -> None:
    """Closing an account refuses its keys' requests at once, without a time to try again."""
    site = make_site(SimulatedProvider())
    key = site.key()
    site.runtime.budgets.close(ACCOUNT, reason="a test")
    with site.http(key) as client:
        refused = client.post("/responses", json=BODY)
    assert refused.status_code == 402
    assert refused.json()["error"]["memoflow"]["reason"] == "closed"
    assert site.provider.requests == []


def test_replies_say_what_was_reserved_and_what_is_left(make_site: MakeSite) -> None:
    """The headers are the reservation, and what the tightest account has left beside it."""
    site = make_site(SimulatedProvider([text("A.")]), Budget(total_tokens=5_000))
    with site.http() as client:
        reply = client.post("/responses", json=BODY)
    found = site.settled()
    held = int(reply.headers["memoflow-reservation-total-tokens"])
    assert reply.headers["memoflow-invocation-id"] == found.id
    assert held == found.reserved.total_tokens
    assert int(reply.headers["memoflow-remaining-total-tokens"]) == 5_000 - held
    assert int(reply.headers["memoflow-remaining-model-calls"]) == 9_999
    assert "memoflow-restored" not in reply.headers


def test_usage_above_the_reservation_is_charged_in_full(make_site: MakeSite) -> None:
    """What the provider reports is charged, and the account then takes nothing new."""
    site = make_site(
        SimulatedProvider([text("A.", usage=usage(2_000, 10), honour_cap=False)]), Budget(total_tokens=1_000)
    )
    with site.http() as client:
        assert client.post("/responses", json=BODY).status_code == 200
        wait_until(lambda: site.account().settled.total_tokens == 2_010)
        assert client.post("/responses", json=BODY).status_code == 402


IMAGE: dict[str, Any] = {
    **BODY,
    "input": [{"role": "user", "content": [{"type": "input_image", "image_url": "https://x.invalid/a.png"}]}],
}


class TestUnmeasurable:
    """Input that nobody can measure here."""

    def test_the_provider_is_asked_to_count(self, make_site: MakeSite) -> None:
        """Where the API counts, its figure is reserved."""
        site = make_site(SimulatedProvider([text("A.")]))
        with site.http() as client:
            assert client.post("/responses", json=IMAGE).status_code == 200
        found = site.settled()
        assert found.input_basis == "counted"
        assert site.provider.wire_requests["POST /v1/responses/input_tokens"] == 1

    def test_a_client_may_declare_it(self, make_site: MakeSite) -> None:
        """A header says it, and is never taken for less than what can be measured."""
        site = make_site(SimulatedProvider([text("A.")]))
        with site.http() as client:
            headers = {"memoflow-input-tokens": "700"}
            assert client.post("/responses", json=IMAGE, headers=headers).status_code == 200
            found = site.settled()
            assert (found.input_basis, found.input_measured) == ("declared", 700)
            bad = client.post("/responses", json=IMAGE, headers={"memoflow-input-tokens": "-1"})
        assert bad.status_code == 400

    def test_a_declaration_does_not_stand_for_what_can_be_measured(self, make_site: MakeSite) -> None:
        """A client cannot reserve less than its text by declaring less."""
        site = make_site(SimulatedProvider([text("A.")]))
        with site.http() as client:
            client.post(
                "/responses", json={**BODY, "input": "x" * 500}, headers={"memoflow-input-tokens": "1"}
            )
        found = site.settled()
        assert found.input_basis == "bound"
        assert (found.input_measured or 0) >= 500

    def test_without_either_it_is_refused(self, make_site: MakeSite) -> None:
        """An account that limits tokens takes no request of unknown size."""
        site = make_site(SimulatedProvider(), count_input=False)
        with site.http() as client:
            refused = client.post("/responses", json=IMAGE)
        assert refused.status_code == 402
        assert refused.json()["error"]["code"] == "budget_unbounded"
        assert site.provider.requests == []


def test_one_budget_holds_for_many_clients_at_once(make_site: MakeSite) -> None:
    """Whatever runs side by side: what is admitted together never goes over the limit."""
    site = make_site(SimulatedProvider(default=text("A.", usage=usage(5, 5))), Budget(model_calls=7))
    key = site.key()

    def ask(_: int) -> int:
        with site.http(key) as client:
            return client.post("/responses", json=BODY).status_code

    with ThreadPoolExecutor(16) as pool:
        codes = list(pool.map(ask, range(24)))
    assert codes.count(200) == 7
    assert set(codes) <= {200, 402, 429}
    assert site.account().settled.model_calls == 7
