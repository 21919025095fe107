"""What those of OpenAI's APIs share that are one path and keep no state."""

from __future__ import annotations

from memoflow.testing._api import GENERATING, Bill, bearer_problem, openai_headers
from memoflow.testing._dialect import Headers
from memoflow.testing._encoding import Ids
from memoflow.testing._openai_dialects import ChatDialect
from memoflow.testing._play import Rendering
from memoflow.testing._rejections import Rejection
from memoflow.testing._wire import RecordedRequest

__all__ = ["OnePath"]


class OnePath:
    """An API of OpenAI whose only operation generates."""

    path: str

    def __init__(self, ids: Ids, bill: Bill) -> None:
        self._ids, self._bill = ids, bill
        self.dialect = ChatDialect()

    def headers(self) -> Headers:
        """Headers of every reply to a new request."""
        return openai_headers(self._ids)

    def refuse(self, record: RecordedRequest, api_key: str | None) -> Rejection | None:
        """What is wrong with the key."""
        return bearer_problem(record, api_key)

    def route(self, method: str, path: str) -> tuple[str, str] | None:
        """Operation and path, or None if it is another one."""
        return (GENERATING, f"POST {path}") if (method, path) == ("POST", self.path) else None

    def answer(self, operation: str, record: RecordedRequest) -> Rendering | Rejection:
        """There is no other operation."""
        raise NotImplementedError(operation)
