"""Prices of models, and what a call costs: exact integers of nano-units, rounded up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final, NamedTuple

from memoflow.budget import MAX_AMOUNT, Money, check_amount
from memoflow.canonical import Digester
from memoflow.errors import ConfigurationError, InvalidBudget, PriceUnknown
from memoflow.identity import check_name

__all__ = ["Price", "PriceBook"]

_MILLION: Final = 10**6
_Amount = str | int | Decimal


class _Rates(NamedTuple):
    """Nano-units for a million tokens of each kind."""

    input: int
    output: int
    cached_input: int
    cache_write: int


@dataclass(frozen=True, slots=True, init=False)
class Price:
    """What a model charges for a million tokens of each kind. Amounts are exact; floats are refused.

    Args:
        input: input tokens that are neither read from nor written to a cache.
        output: output tokens, reasoning included.
        cached_input: input tokens read from a cache; the price of input if left out.
        cache_write: input tokens written to a cache; the price of input if left out.
        currency: ISO 4217 code.
        above: for a model that charges a long input in another way: pairs of a number of input
            tokens and the price of all tokens of a call that has more than that many.

    Raises:
        InvalidBudget: an amount is negative, not a decimal number, or finer than a nano-unit.
    """

    rates: _Rates
    currency: str
    above: tuple[tuple[int, Price], ...]

    def __init__(
        self,
        input: _Amount,
        output: _Amount,
        cached_input: _Amount | None = None,
        cache_write: _Amount | None = None,
        *,
        currency: str = "USD",
        above: Iterable[tuple[int, Price]] = (),
    ) -> None:
        base = Money.of(input, currency).nanos
        rates = _Rates(
            base,
            Money.of(output, currency).nanos,
            base if cached_input is None else Money.of(cached_input, currency).nanos,
            base if cache_write is None else Money.of(cache_write, currency).nanos,
        )
        object.__setattr__(self, "rates", rates)
        object.__setattr__(self, "currency", currency)
        object.__setattr__(self, "above", _checked_tiers(above, currency))

    def cost(
        self,
        *,
        input_tokens: int,
        output_tokens: int,
        cached_input_tokens: int = 0,
        cache_write_tokens: int = 0,
    ) -> int:
        """Nano-units for a call that used these tokens; cached and cache-write tokens are part of input.

        Rounded up to a whole nano-unit; `MAX_AMOUNT` at most.

        Raises:
            InvalidBudget: a count is negative, not an integer, or above `MAX_AMOUNT`.
        """
        counts = (input_tokens, output_tokens, cached_input_tokens, cache_write_tokens)
        for name, count in zip(("input", "output", "cached input", "cache write"), counts, strict=True):
            check_amount(f"{name} tokens", count)
        rates = [price.rates for start, price in self.above if input_tokens > start]
        rate = rates[-1] if rates else self.rates
        # A provider that reports more cached tokens than input must not lower the bill.
        plain = max(0, input_tokens - cached_input_tokens - cache_write_tokens)
        return _nanos(
            plain * rate.input
            + output_tokens * rate.output
            + cached_input_tokens * rate.cached_input
            + cache_write_tokens * rate.cache_write
        )

    def ceiling(self, *, input_tokens: int, output_tokens: int) -> int:
        """The most nano-units a call with at most so many tokens can cost, however its input is cached.

        Raises:
            InvalidBudget: a count is negative, not an integer, or above `MAX_AMOUNT`.
        """
        check_amount("input tokens", input_tokens)
        check_amount("output tokens", output_tokens)
        rates = [self.rates, *(price.rates for start, price in self.above if input_tokens > start)]
        dearest_input = max(max(r.input, r.cached_input, r.cache_write) for r in rates)
        return _nanos(input_tokens * dearest_input + output_tokens * max(r.output for r in rates))


def _nanos(per_million: int) -> int:
    # The bound keeps absurd usage figures from overflowing a 64-bit balance.
    return min(-(-per_million // _MILLION), MAX_AMOUNT)


def _checked_tiers(above: Iterable[tuple[int, Price]], currency: str) -> tuple[tuple[int, Price], ...]:
    tiers = tuple(sorted(above, key=lambda tier: tier[0]))
    for start, price in tiers:
        check_amount("the start of a price tier", start)
        if price.above or price.currency != currency:
            raise InvalidBudget("The price of a tier must have no tiers itself and the same currency.")
    if len({start for start, _ in tiers}) != len(tiers):
        raise InvalidBudget("Two price tiers start at the same number of input tokens. Keep one.")
    return tiers


class PriceBook:
    """Prices by model name. A name that ends in ``*`` stands for all names that begin with the rest of it.

    Args:
        prices: the first entries, as for `put`.
    """

    def __init__(self, prices: Mapping[str, Price] | None = None) -> None:
        # Replaced as a whole and never changed, so that readers in other threads need no lock.
        self._table: dict[str, Price] = {}
        self._version: tuple[dict[str, Price], str] | None = None
        self._source: str | None = None
        self._look_up: Callable[[str], Price | None] = lambda model: None
        for model, price in (prices or {}).items():
            self.put(model, price)

    def put(self, model: str, price: Price) -> None:
        """Set the price of a model, or of all models with a prefix (``"gpt-5-mini*"``).

        Raises:
            InvalidBudget: ``price`` is not a `Price`, or the name has a ``*`` before its end.
            InvalidRequest: the name cannot be a name.
        """
        check_name("model", model)
        if "*" in model[:-1]:
            raise InvalidBudget(f"The model name {model!r} has a '*' before its end. Use it at the end only.")
        if not isinstance(price, Price):
            raise InvalidBudget(f"A price must be a Price, not {type(price).__name__}.")
        self._table = {**self._table, model: price}

    def get(self, model: str) -> Price | None:
        """The price of a model: by its name, else by the longest prefix that fits, else from the source."""
        table = self._table
        if model in table:
            return table[model]
        prefixes = [name for name in table if name.endswith("*") and model.startswith(name[:-1])]
        return table[max(prefixes, key=len)] if prefixes else self._look_up(model)

    def require(self, model: str) -> Price:
        """As `get`, but never None.

        Raises:
            PriceUnknown: the model has no price.
        """
        price = self.get(model)
        if price is None:
            raise PriceUnknown(model=model)
        return price

    def cost(
        self,
        model: str,
        *,
        input_tokens: int,
        output_tokens: int,
        cached_input_tokens: int = 0,
        cache_write_tokens: int = 0,
    ) -> int:
        """Nano-units of the currency of the model's price; see `Price.cost`.

        Raises:
            PriceUnknown: the model has no price.
        """
        return self.require(model).cost(
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            cached_input_tokens=cached_input_tokens,
            cache_write_tokens=cache_write_tokens,
        )

    @property
    def version(self) -> str:
        """A digest of the whole table and its source; it is recorded with every invocation."""
        table = self._table
        if self._version is None or self._version[0] is not table:
            prices = {model: _record(price) for model, price in table.items()}
            self._version = table, Digester().json({"prices": prices, "source": self._source})
        return self._version[1]

    @classmethod
    def from_genai_prices(cls, provider: str = "openai", *, at: datetime | None = None) -> PriceBook:
        """The list prices of one provider that the installed ``genai-prices`` package ships.

        Standard tier, tokens only: fees of hosted tools and audio are not in it. What `put` adds
        goes first. A model whose price depends on the hour of the day has none.

        Args:
            provider: its id there, for example ``openai`` or ``anthropic``.
            at: the moment whose prices count; now if left out.

        Raises:
            ConfigurationError: the package is not installed, or knows no such provider.
        """
        moment = at or datetime.now(UTC)
        models, release = _genai_models(provider)
        book = cls()
        book._source = f"genai-prices {release} {provider} {moment.date().isoformat()}"
        book._look_up = lru_cache(256)(lambda model: _genai_price(models, model, moment))
        return book


def _record(price: Price) -> list[Any]:
    return [price.currency, list(price.rates), [[start, list(p.rates)] for start, p in price.above]]


def _genai_models(provider: str) -> tuple[list[Any], str]:
    from importlib.metadata import version

    try:
        from genai_prices.data import providers
    except ImportError:
        raise ConfigurationError(
            "Prices from genai-prices were asked for, but the package is not installed. "
            "Install memoflow-runtime[prices], or add prices with PriceBook.put(...)."
        ) from None
    for known in providers:
        if known.id == provider:
            return known.models, version("genai-prices")
    ids = ", ".join(sorted(known.id for known in providers))
    raise ConfigurationError(f"genai-prices knows no provider {provider!r}. It knows {ids}.")


def _genai_price(models: list[Any], name: str, moment: datetime) -> Price | None:
    from genai_prices.types import StartDateConstraint

    model = next((model for model in models if model.is_match(name)), None)
    if model is None or model.prices == []:
        return None
    conditions = model.prices if isinstance(model.prices, list) else []
    if not all(isinstance(c.constraint, StartDateConstraint | None) for c in conditions):
        return None
    return _translated(model.get_prices(moment))


def _translated(listed: Any) -> Price | None:
    kinds = [
        getattr(listed, f"{kind}_mtok", None) for kind in ("input", "output", "cache_read", "cache_write")
    ]
    if kinds[0] is None or kinds[1] is None:
        return None
    starts = sorted({tier.start for kind in kinds for tier in getattr(kind, "tiers", ())})
    above = [(start, _price_at(kinds, start + 1)) for start in starts]
    return _price_at(kinds, 0, above)


def _price_at(kinds: list[Any], input_tokens: int, above: Iterable[tuple[int, Price]] = ()) -> Price:
    return Price(*[_rate_at(kind, input_tokens) for kind in kinds], above=above)


def _rate_at(kind: Any, input_tokens: int) -> Any:
    tiers = getattr(kind, "tiers", None)
    if tiers is None:
        return kind
    return next((tier.price for tier in reversed(tiers) if input_tokens > tier.start), kind.base)
