"""What a provider said or did."""

from __future__ import annotations

from typing import Final

from memoflow.errors._base import MemoflowError

__all__ = [
    "ClientCallRefused",
    "InvalidProviderReply",
    "ProviderError",
    "ProviderFailed",
    "ProviderNotReached",
    "ProviderRejected",
]


_KEY: Final = "Check the API key and what it may do, then run the same call again."
_ADVICE: Final = {
    401: _KEY,
    403: _KEY,
    404: "Check the model name, what else the request names, and the client's base_url.",
}
_HOPELESS: Final = "Trying the same request again will not help."


class ProviderError(MemoflowError):
    """Base of what a provider said or did. The ledger holds the outcome under ``invocation_id``."""


class ProviderNotReached(ProviderError):
    """No connection could be made, so nothing was sent and the hold was released."""

    retryable = True

    def __init__(self, *, invocation_id: str, cause: str) -> None:
        self.invocation_id, self.cause = invocation_id, cause
        super().__init__(
            f"The provider could not be reached ({cause}); nothing was sent, and the budget of invocation "
            f"{invocation_id} was released. Check the address and the network, then try again."
        )


class ProviderRejected(ProviderError):
    """The provider refused the request with a definite status; it counts as one model call and no tokens.

    Attributes:
        status: HTTP status.
        code: the provider's structured error code, else its type; or None.
        type: the structured type of the error, or None.
        param: the parameter of the request that it names, for example ``input[0].content``, or None.
        retry_after: seconds the provider asked to wait, or None.
    """

    def __init__(
        self,
        *,
        invocation_id: str,
        status: int,
        code: str | None,
        retry_after: float | None,
        retryable: bool,
        type: str | None = None,
        param: str | None = None,
    ) -> None:
        self.invocation_id, self.status = invocation_id, status
        self.code, self.type, self.param = code, type, param
        self.retry_after, self.retryable = retry_after, retryable
        named = ", ".join(part for part in (code, param and f"parameter {param}") if part)
        wait = "" if retry_after is None else f" It asks to wait {retry_after:g} s."
        super().__init__(
            f"The provider refused invocation {invocation_id} with status {status}"
            f"{f' ({named})' if named else ''}; no tokens were used.{wait} "
            f"{'It may be tried again.' if retryable else _ADVICE.get(status, _HOPELESS)}"
        )


class ProviderFailed(ProviderError):
    """The provider's terminal reply says that the response failed or was cancelled; its usage was settled."""

    def __init__(self, *, invocation_id: str, status: str, code: str | None, retryable: bool) -> None:
        self.invocation_id, self.status, self.code, self.retryable = invocation_id, status, code, retryable
        detail = "" if code is None else f" ({code})"
        super().__init__(
            f"The provider ended invocation {invocation_id} as {status}{detail}. "
            f"{'A further attempt may succeed.' if retryable else 'Change the request before trying again.'}"
        )


class InvalidProviderReply(ProviderError):
    """A terminal reply contradicts itself; it was settled, and none of its tool calls ran."""

    def __init__(self, *, invocation_id: str, problem: str) -> None:
        self.invocation_id, self.problem = invocation_id, problem
        super().__init__(
            f"The reply of invocation {invocation_id} is not usable: {problem}. It was settled and recorded; "
            "none of its tool calls ran. Report it to the provider."
        )


class ClientCallRefused(ProviderError):
    """A reply asks the client to act; it was settled, and none of its tool calls ran.

    Attributes:
        items: types of the items that wait for the client, for example ``computer_call``.
    """

    def __init__(self, *, invocation_id: str, items: tuple[str, ...]) -> None:
        self.invocation_id, self.items = invocation_id, items
        super().__init__(
            f"The reply of invocation {invocation_id} waits for the client to act ({', '.join(items)}): on a "
            "screen, a shell or files, or by an approval. memoflow does not do that; it runs functions and "
            "custom tools only. The reply was settled and recorded, and none of its tool calls ran. Offer a "
            "function of your own instead of that hosted tool, or call run() and answer the items yourself, "
            "under a new replay_key."
        )
