r"""Texts that speak to the model where they should only inform it.

Phrases are a bonus: they name what was seen before. What an instruction in a result makes the model do is
told by where the arguments of the next call came from (`memoflow.inspection.provenance`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from memoflow.inspection.detectors.secrets import Hit
from memoflow.inspection.findings import Severity
from memoflow.inspection.matching import Pattern

__all__ = ["injection"]

_PRIOR: Final = (
    r"(?:previous|prior|above|earlier|preceding|foregoing|existing|original|initial|current|system|former)"
)
_ORDERS: Final = (
    r"(?:instructions?|prompts?|rules?|directions?|directives?|guidelines?|commands?"
    r"|context|messages?|polic(?:y|ies)|constraints?|training)"
)
_ALL: Final = r"(?:(?:all|any|the|your|my|these|those|every|each|of)\s+){0,4}"

_SPOKEN: Final[tuple[tuple[Severity, str, tuple[str, ...]], ...]] = (
    (
        "high",
        r"\b(?:ignor(?:iere|ez?|a|ate)|vergiss|vergesst|oubliez?|olvida|dimentica|missachte)\s+"
        r"(?:alle[sn]?|toutes|tous|todas?|todos|tutt[aei]|die|las?|les|le|deine|vos|tes|tus|sus|vorherigen)?\s*"
        r"(?:die|les|las|los|le|deine|vos|tes|tus|vorherigen|bisherigen)?\s*"
        r"(?:vorherigen|bisherigen|anweisungen|instructions?|instrucciones|istruzioni|consignes|richtlinien)\b",
        ("ignor", "verg", "oubli", "olvida", "dimentica", "missachte"),
    ),
    (
        "high",
        r"\byou\s+(?:now\s+)?(?:have|follow|obey|operate\s+with|answer\s+with|respond\s+with)(?:out)?\s+"
        r"(?:no|without|any)\s+(?:\w+\s+){0,2}(?:restrictions?|rules|limits?|filters?|guidelines)\b",
        ("restriction", "rules", "limit", "filter", "guidelines"),
    ),
    (
        "high",
        r"\bsafety\s+(?:protocols?|rules?|filters?|checks?|guidelines?)\s+(?:\w+\s+){0,2}"
        r"(?:disabled|off|suspended|do\s+not\s+apply)\b",
        ("safety",),
    ),
    (
        "high",
        r"\bnote\s+to\s+the\s+(?:bot|ai|assistant|agent|model)\b|\b(?:ai|assistant|agent)s?\s+reading\s+this\b",
        ("note to the", "reading this"),
    ),
    (
        "high",
        rf"\b(?:ignore|disregard|forget|override|bypass)\s+{_ALL}{_PRIOR}\s+(?:\w+\s+){{0,2}}{_ORDERS}\b",
        ("ignore", "disregard", "forget", "override", "bypass"),
    ),
    # What else is discarded and dropped are constraints and policies of databases, and messages of queues.
    (
        "high",
        rf"\b(?:discard|drop)\s+{_ALL}{_PRIOR}\s+(?:\w+\s+){{0,2}}(?:instructions?|prompts?|directives?|guidelines?)\b",
        ("discard", "drop"),
    ),
    ("high", rf"\bdisregard\s+{_ALL}{_PRIOR}\b", ("disregard",)),
    (
        "high",
        r"\b(?:ignore|disregard|forget|override)\s+(?:everything|anything|all"
        r"|what(?:ever)?)\s+(?:\w+\s+){0,4}(?:above|before|previously|prior|so far|earlier"
        r"|told)\b",
        ("ignore", "disregard", "forget", "override"),
    ),
    (
        "high",
        rf"\b(?:do\s+not|don'?t|never)\s+(?:follow|obey|listen\s+to|comply\s+with)\s+{_ALL}(?:{_PRIOR}\s+)?{_ORDERS}\b",
        ("follow", "obey", "listen", "comply"),
    ),
    (
        "high",
        r"\byou\s+are\s+(?:now|no\s+longer)\s+(?:in\s+)?(?:an?\s+|the\s+)?(?:\bDAN\b|developer\s+mode|debug\s+mode|god\s+mode|do\s+anything\s+now|jailbroken|unrestricted|unfiltered|bound\s+by)",
        ("you",),
    ),
    (
        "medium",
        r"\b(?:reveal|print|show|repeat|output|display|leak|disclose|dump)\s+(?:me\s+)?(?:the\s+|your\s+|all\s+|its\s+){0,3}(?:(?:system|hidden|initial|original|developer|secret)\s+){1,2}(?:prompt|instructions?|message)\b",
        ("prompt", "instruction", "message"),
    ),
    (
        "medium",
        r"\b(?:reveal|repeat)\s+(?:the\s+|your\s+){0,2}(?:prompt|instructions)\b",
        ("reveal", "repeat"),
    ),
    (
        "high",
        r"\b(?:new|updated|real|actual|important|urgent|override)\s+(?:system\s+)?instructions?\s*(?:for\s+(?:the\s+)?(?:ai|assistant|agent|model|llm|bot)\s*)?[:!]",
        ("instruction",),
    ),
    (
        "high",
        r"\b(?:attention|note|notice|message|instructions?|important)\s*,?\s*(?:to|for)\s+(?:the\s+|any\s+|all\s+)?(?:ai|llm|language\s+model|assistant|agent|chatbot|copilot)s?\b",
        ("ai", "llm", "model", "assistant", "agent", "chatbot", "copilot"),
    ),
    (
        "high",
        r"\b(?:(?:do\s+not|don'?t|never)\s+(?:tell|inform|notify|alert|mention)"
        r"|without\s+(?:telling|informing|notifying|alerting|mentioning|asking))\s+"
        r"(?:this\s+to\s+)?(?:the\s+)?(?:user|human|operator|owner)\b",
        ("user", "human", "operator", "owner"),
    ),
    (
        "high",
        r"(?:^|\n|[\"'>\]])\s*(?:#{1,4}\s*|\*{0,2}|\[|<)(?:system|admin(?:istrator)?|developer|root)(?:\s+(?:message|note|override|prompt|update|alert|notice))?\s*(?:\]|>|\*{0,2}\s*:)\s*(?:\*{0,2}\s*)?(?:you\b|ignore|from\s+now|the\s+(?:ai|assistant|agent|model)|all\s+(?:ai|agents?|assistants?)|new\s+|forward|send|before\s+|when\s+|please\s+(?:forward|send|execute|run))",
        ("system", "admin", "developer", "root"),
    ),
    (
        "medium",
        r"\bas\s+an?\s+(?:ai|llm|assistant|agent|language\s+model)\s*,?\s+you\s+(?:must|should|need\s+to|have\s+to|are\s+required)\b",
        ("as a",),
    ),
    (
        "medium",
        r"\bbefore\s+(?:you\s+)?(?:using|calling|answering|responding|continuing|proceeding|you\s+(?:use|call|answer|continue))\b.{0,80}\b(?:must|always|first)\b.{0,80}\b(?:read|call|send|include|pass|upload|run|execute)\b",
        ("before",),
    ),
)
_PHRASES: Final[tuple[tuple[Severity, Pattern], ...]] = tuple(
    (severity, Pattern(source, needs=needs, ignore_case=True)) for severity, source, needs in _SPOKEN
)
_MARKERS: Final = Pattern(
    r"<\|(?:im_start|im_end|endoftext|system|user|assistant|eot_id|start_header_id)\|>", needs=("<|",)
)
_TEMPLATE: Final = Pattern(
    r"\[/?INST\]|<</?SYS>>|</?(?:tool_response|system_prompt|system-reminder|function_results)>",
    needs=("[", "<"),
)
_WORDS: Final = Pattern(
    r"\b(?:ignore|disregard|override|bypass|forget|reveal|pretend|act\s+as)\b",
    needs=("ignore", "disregard", "override", "bypass", "forget", "reveal", "pretend", "act"),
    ignore_case=True,
)
_BASE64: Final = Pattern(r"[A-Za-z0-9+/]{40,}={0,2}")
_FENCES: Final = Pattern(r"```|###|---|<\|")


def injection(data: bytes) -> Iterator[Hit]:
    """Phrases, markers of chat templates, and one finding for what only smells."""
    for severity, pattern in _PHRASES:
        for start, end in pattern.spans(data):
            yield Hit("injection", severity, 90, start, end)
    for pattern in (_MARKERS, _TEMPLATE):
        for start, end in pattern.spans(data):
            yield Hit("injection", "medium", 90, start, end)
    score = _smell(data)
    if score >= 30:
        # Never more: programs and their manuals override and ignore things all the time.
        yield Hit("injection", "medium" if score >= 75 else "low", score, 0, len(data))


def _smell(data: bytes) -> int:
    """In percent: thirty for each of three such words, thirty for a long code, ten for each fence."""
    words = len({data[start:end].lower() for start, end in _WORDS.spans(data)})
    code = 1 if _BASE64.found_in(data) else 0
    return min(100, 30 * min(3, words) + 30 * code + 10 * _fences(data))


def _fences(data: bytes) -> int:
    return sum(1 for _ in zip(range(3), _FENCES.spans(data), strict=False))
