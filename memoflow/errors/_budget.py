"""Refusals that concern a budget."""

from __future__ import annotations

from datetime import datetime

from memoflow.errors._base import MemoflowError
from memoflow.figures import figure

__all__ = [
    "BudgetDenied",
    "BudgetError",
    "BudgetNotConfigured",
    "BudgetTooSmall",
    "BudgetUnbounded",
    "EstimateRefused",
    "InvalidBudget",
    "PriceUnknown",
    "ToolCallBudgetExceeded",
]


class BudgetError(MemoflowError):
    """Base of refusals that concern a budget."""


class InvalidBudget(BudgetError):
    """An amount, limit, period or account name is not valid."""


class BudgetNotConfigured(BudgetError):
    """No such account (or ancestor of it) exists, or none is named: a refusal, never "unlimited"."""

    def __init__(self, *, account: str | None, namespace: str) -> None:
        self.account, self.namespace = account, namespace
        super().__init__(self._sentence())

    def _sentence(self) -> str:
        if self.account is None:
            return (
                "No budget account is named, so nothing may be spent. Name one with "
                "@rt.activity(budget=...), with account=... on the call, or with rt.run(under=...)."
            )
        return (
            f"Budget account {self.account!r} does not exist in namespace {self.namespace!r}, so nothing may "
            f"be spent on it. Create it with rt.budgets.put({self.account!r}, Budget(...)) or "
            "`memoflow budget put`."
        )


class BudgetDenied(BudgetError):
    """A reservation does not fit on an account. Cost is in nano-units.

    Attributes:
        account: the account that refused.
        dimension: the dimension that did not fit, for example ``total_tokens``.
        limit: the hard limit; settled, held, unknown, requested: the figures it was compared with.
        currency: of these figures, if they are money.
        fits: the largest amount of this dimension that this account would admit now; another may admit less.
        output_cap_fits: the largest output cap, up to the one asked for, that all accounts would admit now
            if the call reserved no more than it needs with that cap; 0 if there is none. None if the output
            has no part in the refusal, or the input is not known.
        resets_at: when the period of the balance ends (UTC), or None if it never does.
        reason: ``limit``, ``closed`` or ``over_limit``.
    """

    def __init__(
        self,
        *,
        account: str,
        dimension: str,
        limit: int,
        settled: int,
        held: int,
        unknown: int,
        requested: int,
        currency: str | None = None,
        resets_at: datetime | None = None,
        output_cap_fits: int | None = None,
        reason: str = "limit",
    ) -> None:
        self.account, self.dimension, self.reason, self.currency = account, dimension, reason, currency
        self.limit, self.settled, self.held, self.unknown = limit, settled, held, unknown
        self.requested, self.resets_at, self.output_cap_fits = requested, resets_at, output_cap_fits
        self.fits = max(0, limit - settled - held - unknown)
        super().__init__(self._sentence())

    def _sentence(self) -> str:
        if self.reason == "closed":
            return (
                f"Budget account {self.account!r} is closed and takes no new reservations. Open it with "
                f"rt.budgets.reopen({self.account!r}), or reserve on another account."
            )
        limit, settled, held, unknown, requested, fits = (
            figure(self.dimension, value, self.currency)
            for value in (self.limit, self.settled, self.held, self.unknown, self.requested, self.fits)
        )
        reset = "" if self.resets_at is None else f" The period resets at {self.resets_at.isoformat()}."
        resolve = " Resolve unknowns with `memoflow reconcile list`." if self.unknown else ""
        return (
            f"Budget account {self.account!r} refused {requested} {self.dimension}: limit {limit}, "
            f"settled {settled}, held {held}, unknown {unknown}, so {fits} would fit on this account."
            f"{reset}{resolve} {self._advice()}"
        )

    def _advice(self) -> str:
        if self.output_cap_fits is None:
            return "Raise the limit or ask for less."
        if self.output_cap_fits == 0:
            return (
                "No output cap that the provider takes would fit beside the input. Raise the limit or "
                "shorten the input."
            )
        return (
            f"An output cap of {self.output_cap_fits} would fit, reserving no more than it needs. "
            "Raise the limit or ask for less."
        )


class BudgetTooSmall(BudgetError):
    """The request's own output cap, or its input alone, does not fit the reservation. Cost is in nano-units.

    ``output_cap_fits`` is 0 if no output cap would fit.
    """

    def __init__(
        self,
        *,
        dimension: str,
        reserved: int,
        needed: int,
        output_cap_fits: int,
        basis: str,
        currency: str | None = None,
    ) -> None:
        self.dimension, self.reserved, self.needed, self.currency = dimension, reserved, needed, currency
        self.output_cap_fits, self.basis = output_cap_fits, basis
        super().__init__(self._sentence())

    def _sentence(self) -> str:
        reserved, needed = (
            figure(self.dimension, value, self.currency) for value in (self.reserved, self.needed)
        )
        if self.output_cap_fits:
            advice = f"An output cap of {self.output_cap_fits} would fit; lower the cap"
        elif self.dimension == "output_tokens":
            advice = "That is less output than the provider can be asked for; leave output_tokens out"
        else:
            advice = "The input leaves no room for an output cap that the provider takes; shorten the input"
        return (
            f"The reservation of {reserved} {self.dimension} is too small: the call needs {needed} "
            f"(input measured as {self.basis!r}). {advice} or reserve at least {needed}."
        )


class BudgetUnbounded(BudgetError):
    """An account limits a dimension in which this call has no upper bound."""

    def __init__(self, *, account: str, dimension: str, hint: str) -> None:
        self.account, self.dimension, self.hint = account, dimension, hint
        super().__init__(
            f"Budget account {account!r} limits {dimension}, but this call has no upper bound in it. {hint}"
        )


class EstimateRefused(BudgetError):
    """An account takes only true upper bounds of the input, and the call's was estimated."""

    def __init__(self, *, account: str) -> None:
        self.account = account
        super().__init__(
            f"Budget account {account!r} takes no estimated input (strict_input). "
            "Pass strict_input=True, count_input=True or input_tokens=…, or reserve more."
        )


class PriceUnknown(BudgetError):
    """An account has a money limit and the model has no price."""

    def __init__(self, *, model: str, account: str | None = None) -> None:
        self.model, self.account = model, account
        where = "" if account is None else f" and account {account!r} limits cost"
        super().__init__(
            f"No price is known for model {model!r}{where}, so the call was refused before it was sent. "
            "Add one with PriceBook.put(...), or allow it with an audited override: "
            "rt.budgets.allow_unpriced(model, actor=..., reason=...)."
        )


class ToolCallBudgetExceeded(BudgetError):
    """One reply asked for more tool calls than its round reserved; none of them ran."""

    def __init__(self, *, asked: int, reserved: int, round: int) -> None:
        self.asked, self.reserved, self.round = asked, reserved, round
        super().__init__(
            f"The model asked for {asked} tool calls in round {round}, but {reserved} were reserved. "
            "None of them ran and the reply was settled. Reserve more tool_calls for that round, under a new "
            "replay_key or run_id: what is recorded keeps its reservation."
        )
