"""Prices: exact integers, rounded up, never cheaper than the tokens reported."""

from __future__ import annotations

import copy
import decimal
import pickle
import random
import sys
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoflow.budget import MAX_AMOUNT
from memoflow.errors import ConfigurationError, InvalidBudget, InvalidRequest, PriceUnknown
from memoflow.pricing import Price, PriceBook, _genai_price

amounts = st.decimals(0, 1000, places=6)
tokens = st.integers(0, 10**7)
COUNTS = ["input_tokens", "output_tokens", "cached_input_tokens", "cache_write_tokens"]
WHEN = datetime(2026, 11, 1, tzinfo=UTC)


def test_a_call_costs_its_tokens() -> None:
    """Each kind of token is charged at its own rate; cached and written ones are part of input."""
    price = Price("1.25", "10", cached_input="0.125", cache_write="1.5")
    used = {"input_tokens": 1_000, "cached_input_tokens": 600, "cache_write_tokens": 100, "output_tokens": 50}
    assert price.cost(**used) == 300 * 1_250 + 600 * 125 + 100 * 1_500 + 50 * 10_000


def test_kinds_without_a_price_cost_what_input_costs() -> None:
    """Cached and written tokens are charged as plain input where no price is given, not as free."""
    price = Price(2, 8)
    assert (
        price.cost(input_tokens=100, cached_input_tokens=60, cache_write_tokens=40, output_tokens=0)
        == 200_000
    )
    free = Price(2, 8, cached_input=0, cache_write=0)
    assert free.cost(input_tokens=100, cached_input_tokens=60, cache_write_tokens=40, output_tokens=0) == 0


def test_costs_are_rounded_up() -> None:
    """A fraction of a nano-unit is charged as a whole one, once for the call and not for each kind."""
    price = Price("0.000001", "0.000001")
    assert price.cost(input_tokens=1, output_tokens=0) == 1
    assert price.cost(input_tokens=500, output_tokens=500) == 1
    assert price.cost(input_tokens=500, output_tokens=501) == 2
    assert price.cost(input_tokens=0, output_tokens=0) == 0


@given(amounts, amounts, amounts, amounts, st.lists(tokens, min_size=4, max_size=4))
def test_costs_are_exact(a: Decimal, b: Decimal, c: Decimal, d: Decimal, counts: list[int]) -> None:
    """The cost is the exact fraction, rounded up by less than one nano-unit, and never above the ceiling."""
    plain, output, cached, written = counts
    used = plain + cached + written
    price = Price(a, b, cached_input=c, cache_write=d)
    cost = price.cost(
        input_tokens=used, output_tokens=output, cached_input_tokens=cached, cache_write_tokens=written
    )
    exact = sum(Fraction(rate) * count for rate, count in zip((a, b, c, d), counts, strict=True)) * 1000
    assert 0 <= cost - exact < 1
    assert cost <= price.ceiling(input_tokens=used, output_tokens=output)


def test_a_narrow_decimal_context_changes_nothing() -> None:
    """Prices are exact whatever precision the caller's decimal context has."""
    with decimal.localcontext(prec=2):
        price = Price("123.456789", Decimal("0.000000001"))
    assert price.cost(input_tokens=10**6, output_tokens=10**6) == 123_456_789_001


def test_more_cached_tokens_than_input_do_not_lower_the_bill() -> None:
    """A provider that reports more cached tokens than input is charged for them, and for no negative rest."""
    price = Price(10, 1, cached_input=1)
    assert price.cost(input_tokens=10, cached_input_tokens=100, output_tokens=0) == 100 * 1_000


def test_the_ceiling_takes_the_dearest_kind_of_input() -> None:
    """Writing to a cache may cost more than plain input, so a reservation must hold that."""
    assert Price(1, 2, cache_write="1.25").ceiling(input_tokens=100, output_tokens=10) == 145_000
    assert Price(1, 2, cached_input="0.1").ceiling(input_tokens=100, output_tokens=10) == 120_000


def test_a_long_input_changes_the_price_of_the_whole_call() -> None:
    """Above the start of a tier all tokens have its price; at the start none has."""
    price = Price(1, 10, above=[(400, Price(4, 40)), (200, Price(2, 20))])
    assert [price.cost(input_tokens=n, output_tokens=1) for n in (200, 201, 400, 401)] == [
        200 * 1_000 + 10_000,
        201 * 2_000 + 20_000,
        400 * 2_000 + 20_000,
        401 * 4_000 + 40_000,
    ]
    assert [price.ceiling(input_tokens=n, output_tokens=1) for n in (200, 201)] == [210_000, 422_000]


def test_the_ceiling_holds_for_every_shorter_input() -> None:
    """Where a later tier is cheaper, a shorter input may cost more: the ceiling covers it."""
    price = Price(10, 10, above=[(100, Price(1, 1))])
    ceiling = price.ceiling(input_tokens=150, output_tokens=5)
    assert ceiling == 155 * 10_000
    assert all(price.cost(input_tokens=n, output_tokens=5) <= ceiling for n in range(151))
    assert price.ceiling(input_tokens=100, output_tokens=0) == 1_000_000


def test_absurd_usage_cannot_overflow_a_balance() -> None:
    """The cost of the largest counts at the highest price is `MAX_AMOUNT`, which a 64-bit column holds."""
    price = Price(1_000_000, 1_000_000)
    assert price.cost(input_tokens=MAX_AMOUNT, output_tokens=MAX_AMOUNT) == MAX_AMOUNT
    assert price.ceiling(input_tokens=MAX_AMOUNT, output_tokens=MAX_AMOUNT) == MAX_AMOUNT


@pytest.mark.parametrize(
    "bad", [0.1, True, None, "", "one", "NaN", "Infinity", "-1", "0.0000000001", 10**7, b"1"]
)
def test_a_price_that_is_not_exact_is_refused(bad: Any) -> None:
    """Floats, negatives, NaN and amounts finer than a nano-unit are no prices."""
    with pytest.raises(InvalidBudget):
        Price(bad, 1)
    with pytest.raises(InvalidBudget):
        Price(1, bad)
    if bad is not None:
        with pytest.raises(InvalidBudget):
            Price(1, 1, cached_input=bad)
        with pytest.raises(InvalidBudget):
            Price(1, 1, cache_write=bad)


@pytest.mark.parametrize("bad", [-1, 1.0, True, None, "10", MAX_AMOUNT + 1])
@pytest.mark.parametrize(
    "name", ["input_tokens", "output_tokens", "cached_input_tokens", "cache_write_tokens"]
)
def test_token_counts_are_checked(name: str, bad: Any) -> None:
    """A count that is no count is refused by its name."""
    counts: dict[str, Any] = {"input_tokens": 1, "output_tokens": 1, name: bad}
    with pytest.raises(InvalidBudget, match=name.replace("_", " ")):
        Price(1, 1).cost(**counts)
    if name in ("input_tokens", "output_tokens"):
        with pytest.raises(InvalidBudget, match=name.replace("_", " ")):
            Price(1, 1).ceiling(**counts)


@pytest.mark.parametrize(
    "above",
    [
        [(1, Price(1, 1)), (1, Price(2, 2))],
        [(-1, Price(1, 1))],
        [(1, Price(1, 1, currency="EUR"))],
        [(1, Price(1, 1, above=[(2, Price(1, 1))]))],
    ],
    ids=["twice", "negative", "currency", "nested"],
)
def test_tiers_that_contradict_are_refused(above: list[tuple[int, Price]]) -> None:
    """Tiers have distinct starts, one currency and no tiers of their own."""
    with pytest.raises(InvalidBudget):
        Price(1, 1, above=above)


def test_a_currency_is_a_code() -> None:
    """The currency of a price is checked like that of money."""
    assert Price(1, 1, currency="EUR").currency == "EUR"
    with pytest.raises(InvalidBudget, match="three capital letters"):
        Price(1, 1, currency="euro")


def test_prices_are_values() -> None:
    """Equal prices are equal, hash alike, cannot be changed, and survive copy and pickle."""
    price = Price("1.0", 2, above=[(5, Price(3, 4))])
    assert price == Price(1, "2.00", above=[(5, Price(3, 4))])
    assert len({price, copy.deepcopy(price), pickle.loads(pickle.dumps(price))}) == 1
    assert price != Price(1, 2)
    with pytest.raises(AttributeError):
        price.currency = "EUR"  # type: ignore[misc]


# --- the book ---------------------------------------------------------------------------------------


def test_the_exact_name_wins_then_the_longest_prefix() -> None:
    """Lookup goes from the exact name over the longest prefix with '*' to nothing."""
    book = PriceBook({"*": Price(9, 9), "m-*": Price(1, 1), "m-mini*": Price(2, 2), "m-mini-1": Price(3, 3)})
    found = [book.get(name) for name in ("m-mini-1", "m-mini-2", "m-mini", "m-x", "m-", "m", "other")]
    assert [price.rates.input // 10**9 for price in found if price] == [3, 2, 2, 1, 1, 9, 9]
    assert PriceBook({"m": Price(1, 1)}).get("m-2026-11-01") is None
    assert PriceBook({"m*": Price(1, 1)}).get("M") is None


def test_an_unknown_model_is_never_free() -> None:
    """Without a price there is no cost: `PriceUnknown` names the model and how to add one."""
    book = PriceBook()
    assert book.get("m") is None
    for ask in (lambda: book.require("m"), lambda: book.cost("m", input_tokens=1, output_tokens=1)):
        with pytest.raises(PriceUnknown, match=r"'m'.*PriceBook\.put"):
            ask()


def test_the_book_charges_the_price_of_the_model() -> None:
    """`PriceBook.cost` passes all four counts on."""
    price = Price(1, 2, cached_input=3, cache_write=4)
    used = {"input_tokens": 100, "output_tokens": 10, "cached_input_tokens": 20, "cache_write_tokens": 30}
    book = PriceBook({"m": price})
    assert book.cost("m", **used) == price.cost(**used) == 250_000
    assert book.cost("m", input_tokens=100, output_tokens=10) == 120_000


@pytest.mark.parametrize("name", ["a*b", "*a", "**", "a*b*"])
def test_a_star_stands_at_the_end_only(name: str) -> None:
    """Other patterns are refused, because they would never match."""
    with pytest.raises(InvalidBudget, match="at the end only"):
        PriceBook().put(name, Price(1, 1))


def test_only_prices_under_names_are_accepted() -> None:
    """A number is no price, and an empty text no name."""
    with pytest.raises(InvalidBudget, match="must be a Price, not float"):
        PriceBook().put("m", 0.1)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match="model must have 1 to"):
        PriceBook().put("", Price(1, 1))


def test_the_version_is_a_digest_of_the_table() -> None:
    """It is fixed for a table, independent of insertion order, and changes with every figure in it."""
    one, two = Price(1, 2), Price(3, 4)
    book = PriceBook({"a": one, "b": two})
    assert book.version == PriceBook({"b": two, "a": one}).version
    assert book.version == "sha256:db082b09e6eb0e635f6181d673ced89b9d5ffcecc74997b8f1348c6c83aed945"
    others = [
        PriceBook(),
        PriceBook({"a": one}),
        PriceBook({"a": one, "c": two}),
        PriceBook({"a": two, "b": one}),
        PriceBook({"a": one, "b": Price(3, 4, currency="EUR")}),
        PriceBook({"a": one, "b": Price(3, 4, cached_input=1)}),
        PriceBook({"a": one, "b": Price(3, 4, cache_write=1)}),
        PriceBook({"a": one, "b": Price(3, 4, above=[(9, two)])}),
        PriceBook({"a": one, "b": Price(3, 4, above=[(8, two)])}),
    ]
    assert len({book.version, *(other.version for other in others)}) == 1 + len(others)


def test_the_version_follows_a_change() -> None:
    """A price put later changes the version that was read before."""
    book = PriceBook({"a": Price(1, 2)})
    before = book.version
    book.put("a", Price(1, 3))
    assert book.version != before
    book.put("a", Price(1, 2))
    assert book.version == before


# --- genai-prices -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def genai() -> Any:
    """The data of the genai-prices package."""
    pytest.importorskip("genai_prices", reason="the optional extra 'prices' is not installed")
    from genai_prices import data

    return {provider.id: provider for provider in data.providers}


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_list_prices_agree_with_genai_prices(genai: Any, provider: str) -> None:
    """For every model and tier the cost here is the package's own calculation, rounded up to a nano-unit."""
    from genai_prices.types import Usage

    book, compared = PriceBook.from_genai_prices(provider, at=WHEN), 0
    for listed in genai[provider].models:
        model = next(
            other for other in genai[provider].models if other.is_match(listed.id) or other is listed
        )
        price = book.get(listed.id) if model.is_match(listed.id) else None
        if price is None:
            continue
        starts = [start for start, _ in price.above]
        for size in (1, 1000, *starts, *[start + 1 for start in starts]):
            cached = random.randrange(size)
            usage = Usage(input_tokens=size, output_tokens=7, cache_read_tokens=cached)
            theirs = model.calc_price(usage, genai[provider], genai_request_timestamp=WHEN).total_price
            ours = price.cost(input_tokens=size, output_tokens=7, cached_input_tokens=cached)
            assert 0 <= ours - Fraction(theirs) * 10**9 < 1, listed.id
            compared += 1
    assert compared > 20


def test_own_prices_go_before_list_prices(genai: Any) -> None:
    """What is put into a book from the list wins, also by prefix, and changes its version."""
    book = PriceBook.from_genai_prices("openai", at=WHEN)
    before, listed = book.version, book.get("gpt-4o-mini")
    assert listed is not None
    book.put("gpt-4o*", Price(7, 7))
    assert book.get("gpt-4o-mini") == Price(7, 7)
    assert book.version != before
    assert book.get("gpt-4.1") is not None
    assert book.get("no-such-model") is None


def test_list_prices_have_a_version_of_their_own(genai: Any) -> None:
    """The version says package release, provider and day, so that two workers agree on it."""
    version = PriceBook.from_genai_prices("openai", at=WHEN).version
    assert version == PriceBook.from_genai_prices("openai", at=WHEN.replace(hour=9)).version
    assert version != PriceBook.from_genai_prices("anthropic", at=WHEN).version
    assert version != PriceBook.from_genai_prices("openai", at=WHEN.replace(day=2)).version
    assert version != PriceBook().version


def test_prices_that_change_by_the_hour_are_unknown(genai: Any) -> None:
    """A price that starts on a day is taken as of that day; one that depends on the hour is unknown."""
    from genai_prices import types

    def listed(constraint: Any) -> list[Any]:
        cheap, dear = (types.ModelPrice(input_mtok=Decimal(n), output_mtok=Decimal(n)) for n in (1, 2))
        prices = [types.ConditionalPrice(prices=cheap), types.ConditionalPrice(constraint, prices=dear)]
        return [types.ModelInfo(id="m", match=types.ClauseEquals("m"), prices=prices)]

    start = listed(types.StartDateConstraint(WHEN.date()))
    assert _genai_price(start, "m", WHEN) == Price(2, 2)
    assert _genai_price(start, "m", WHEN - timedelta(days=1)) == Price(1, 1)
    assert _genai_price(listed(types.TimeOfDateConstraint(time(1), time(2))), "m", WHEN) is None


@pytest.mark.parametrize("prices", [{}, {"input_mtok": 1}, {"output_mtok": 1}, None], ids=repr)
def test_models_that_are_not_priced_by_tokens_are_unknown(genai: Any, prices: dict[str, int] | None) -> None:
    """A model without a price for input or output, or with none at all, is refused and not free."""
    from genai_prices import types

    listed = [] if prices is None else types.ModelPrice(**{kind: Decimal(n) for kind, n in prices.items()})
    assert (
        _genai_price([types.ModelInfo(id="m", match=types.ClauseEquals("m"), prices=listed)], "m", WHEN)
        is None
    )


def test_an_unknown_provider_is_refused(genai: Any) -> None:
    """The refusal lists the providers there are."""
    with pytest.raises(ConfigurationError, match=r"no provider 'acme'.*anthropic.*openai"):
        PriceBook.from_genai_prices("acme")


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the optional package the error says what to install and what to do instead."""
    missing: dict[str, ModuleType | None] = {"genai_prices": None, "genai_prices.data": None}
    for name, module in missing.items():
        monkeypatch.setitem(sys.modules, name, module)
    with pytest.raises(ConfigurationError, match=r"memoflow-runtime\[prices\].*PriceBook\.put"):
        PriceBook.from_genai_prices()
