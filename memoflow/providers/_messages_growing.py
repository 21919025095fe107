"""One content block of a Messages stream, while its deltas come in.

Texts are joined by field, so that any way to cut them gives the same block. The signature of a thinking
block comes whole, in one delta: the last one is it, as for the SDK. Blocks and deltas of an unknown type are
kept as far as their form tells how: text continues text, a list a list, and anything else takes its place.
"""

from __future__ import annotations

from io import StringIO
from typing import Any, Final

from memoflow.canonical import freeze_json
from memoflow.errors import InvalidRequest
from memoflow.providers._messages_blocks import RAW_INPUT, parsed_input
from memoflow.providers.base import UnreadableReply

__all__ = ["GrowingBlock", "frozen"]

_CALLS: Final = frozenset({"tool_use", "server_tool_use", "mcp_tool_use"})
# The blocks that a delta belongs to, and the field of the delta that counts.
_DELTAS: Final[dict[str, tuple[frozenset[str], str]]] = {
    "citations_delta": (frozenset({"text"}), "citation"),
    "input_json_delta": (_CALLS, RAW_INPUT),
    "signature_delta": (frozenset({"thinking"}), "signature"),
    "text_delta": (frozenset({"text"}), "text"),
    "thinking_delta": (frozenset({"thinking"}), "thinking"),
}
_KNOWN_BLOCKS: Final = _CALLS | {"text", "thinking", "redacted_thinking"}
_FIXED: Final = frozenset({"id", "name", "type", RAW_INPUT})


def frozen(value: Any) -> Any:
    """A checked copy of a part of an event; raises UnreadableReply if it is not plain JSON."""
    try:
        return freeze_json(value)
    except InvalidRequest:
        raise UnreadableReply("NOT_JSON") from None


class GrowingBlock:
    """A content block from its start to its end.

    Args:
        block: the block its start event names, frozen.
    """

    __slots__ = ("_block", "_kind", "_texts", "is_open")

    def __init__(self, block: Any) -> None:
        self._block = block
        kind = block.get("type") if isinstance(block, dict) else None
        self._kind = kind if isinstance(kind, str) else ""
        self._texts: dict[str, StringIO] = {}
        self.is_open = True

    def add(self, delta: Any) -> bool:
        """Take a delta; False if it does not fit."""
        if not isinstance(delta, dict) or not self._kind:
            return False
        kind = delta.get("type")
        rule = _DELTAS.get(kind) if isinstance(kind, str) else None
        if rule is None:
            return self._add_unknown(delta)
        blocks, field = rule
        if self._kind in _KNOWN_BLOCKS and self._kind not in blocks:
            return False
        value = delta.get(field)
        if field == "citation":
            return self._add_citation(value)
        if not isinstance(value, str):
            return False
        if field == "signature":
            self._block[field] = value
            return True
        return self._add_text(field, value)

    def finished(self) -> tuple[Any, bool]:
        """The block as a whole reply has it, and whether its input was sent only once or alike."""
        if not self._kind:
            return self._block, True
        texts = {field: buffer.getvalue() for field, buffer in self._texts.items()}
        raw = texts.pop(RAW_INPUT, None)
        block = {**self._block, **texts}
        if raw is None:
            return ({**block, "input": block.get("input") or {}} if self._kind == "tool_use" else block), True
        return _with_input(block, raw)

    def _add_text(self, field: str, value: str) -> bool:
        if field not in self._texts:
            given = None if field == RAW_INPUT else self._block.get(field)
            if not (given is None or isinstance(given, str)):
                return False
            self._texts[field] = StringIO()
            self._texts[field].write(given or "")
        self._texts[field].write(value)
        return True

    def _add_citation(self, value: Any) -> bool:
        given = self._block.get("citations")
        if not isinstance(value, dict) or not (given is None or isinstance(given, list)):
            return False
        self._block["citations"] = citations = [] if given is None else given
        citations.append(frozen(value))
        return True

    def _add_unknown(self, delta: dict[str, Any]) -> bool:
        # What a call is must never be guessed.
        if self._kind == "tool_use":
            return False
        for field, value in frozen(delta).items():
            if field in _FIXED or value is None:
                continue
            given = self._block.get(field)
            if isinstance(value, str) and (field in self._texts or isinstance(given, str)):
                self._add_text(field, value)
            elif isinstance(value, list) and isinstance(given, list):
                given.extend(value)
            else:
                self._texts.pop(field, None)
                self._block[field] = value
        return True


def _with_input(block: dict[str, Any], raw: str) -> tuple[dict[str, Any], bool]:
    given = block.get("input")
    parsed = parsed_input(raw)
    if parsed is None:
        return {**block, "input": {}, RAW_INPUT: raw}, True
    if not given:
        return {**block, "input": parsed}, True
    # Some servers send the whole input at the start, and then perhaps once more in deltas.
    return block, not raw.strip() or given == parsed
