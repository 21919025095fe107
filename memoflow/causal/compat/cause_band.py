"""Cause Band: arithmetic over a trajectory whose bands were labelled by somebody else.

Experimental and non-normative, as in the Causal Memory Layer. Nothing is inferred from records: it says how
long a labelled course stayed outside the safe band, and whether it came back.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Final

from memoflow.canonical import JSON
from memoflow.causal.record import RecordRefused

__all__ = ["CauseBand", "evaluate_cause_band"]

_RANKS: Final = {"safe_range": 0, "warning_range": 1, "danger_range": 2, "critical_range": 3}
_DEFAULT_THRESHOLD: Final = 3
_LEADING_DIGITS: Final = re.compile(r"\s*([0-9]{1,18})")


@dataclass(frozen=True, slots=True)
class CauseBand:
    """What the bands of a trajectory say.

    Attributes:
        duration_threshold: steps outside the safe band that count as persistent.
        trajectory_direction: stable, degrading, recovering, oscillating or mixed.
        predicted_codes: which of the three experimental codes apply, sorted.
    """

    case_id: JSON
    status: JSON
    duration_threshold: int
    bands: tuple[str, ...]
    trajectory_direction: str
    recovered_to_safe: bool
    oscillating: bool
    max_consecutive_outside_safe: int
    predicted_codes: tuple[str, ...]
    expected_future_codes: tuple[str, ...]

    @property
    def matches_expected_future(self) -> bool | None:
        """Whether the codes are those that the case expects; None if it expects none."""
        return self.predicted_codes == self.expected_future_codes if self.expected_future_codes else None

    def to_dict(self) -> dict[str, JSON]:
        """Plain JSON with the names of the Causal Memory Layer."""
        return {
            "case_id": self.case_id,
            "status": self.status,
            "duration_threshold": self.duration_threshold,
            "bands": list(self.bands),
            "trajectory_direction": self.trajectory_direction,
            "recovered_to_safe": self.recovered_to_safe,
            "oscillating": self.oscillating,
            "max_consecutive_outside_safe": self.max_consecutive_outside_safe,
            "predicted_codes": list(self.predicted_codes),
            "expected_future_codes": list(self.expected_future_codes),
            "matches_expected_future": self.matches_expected_future,
        }


def evaluate_cause_band(raw: object) -> CauseBand:
    """Evaluate a trajectory, or the one in an object's ``cause_band_sidecar``.

    Raises:
        RecordRefused: there is no trajectory, or a step has no band that is known.
    """
    case = _mapping(raw, "A Cause Band case")
    if isinstance(sidecar := case.get("cause_band_sidecar"), Mapping):
        case = sidecar
    bands = _bands(case.get("trajectory"))
    ranks = [_RANKS[band] for band in bands]
    threshold = _threshold(case.get("cause_band_policy"))
    longest = max((len(list(run)) for outside, run in groupby(ranks, bool) if outside), default=0)
    return CauseBand(
        case_id=case.get("case_id"),
        status=case.get("status", "experimental"),
        duration_threshold=threshold,
        bands=bands,
        trajectory_direction=_direction(ranks),
        recovered_to_safe=_turns(ranks) >= 1,
        oscillating=_oscillating(ranks),
        max_consecutive_outside_safe=longest,
        predicted_codes=_codes(max(ranks), longest >= threshold),
        expected_future_codes=_expected(case.get("expected_future_cause_band_behavior")),
    )


def _codes(worst: int, persistent: bool) -> tuple[str, ...]:
    applies = {
        "CML-AUDIT-RANGE-CRITICAL_EXIT": worst == 3,
        "CML-AUDIT-RANGE-DRIFT": worst >= 1,
        "CML-AUDIT-RANGE-PERSISTENT_DEVIATION": persistent,
    }
    return tuple(code for code, does in applies.items() if does)


def _turns(ranks: Sequence[int]) -> int:
    """How often the course comes back into the safe band."""
    return sum(before > 0 and after == 0 for before, after in pairwise(ranks))


def _oscillating(ranks: Sequence[int]) -> bool:
    """Outside, safe, and outside again."""
    outside = [bool(rank) for rank in ranks]
    kinds = [kind for kind, _ in groupby(outside)]
    return kinds[kinds.index(True) :].count(True) > 1 if True in kinds else False


def _direction(ranks: Sequence[int]) -> str:
    if len(ranks) < 2:
        return "stable"
    if _oscillating(ranks):
        return "oscillating"
    ups = any(after > before for before, after in pairwise(ranks))
    downs = any(after < before for before, after in pairwise(ranks))
    if ups and downs:
        return "recovering" if ranks[-1] == 0 else "mixed"
    return "degrading" if ups else "recovering" if downs else "stable"


def _bands(trajectory: object) -> tuple[str, ...]:
    if not isinstance(trajectory, (list, tuple)) or not trajectory:
        raise RecordRefused("A Cause Band case must have a trajectory: a list of at least one step.")
    bands = tuple(_band(_mapping(step, "A step of a trajectory").get("band")) for step in trajectory)
    if unknown := sorted(set(bands) - _RANKS.keys()):
        shown = [name[:40] for name in unknown[:3]]
        raise RecordRefused(f"Unknown Cause Band values: {shown}. Known ones: {', '.join(_RANKS)}.")
    return bands


def _band(value: JSON) -> str:
    if isinstance(value, str):
        return value
    raise RecordRefused("Every step of a trajectory must have a 'band', which is text.")


def _threshold(policy: object) -> int:
    """A positive number, or the digits that a text begins with; else the default. The unit says nothing."""
    value = policy.get("duration_threshold") if isinstance(policy, Mapping) else None
    if isinstance(value, str) and (digits := _LEADING_DIGITS.match(value)):
        value = int(digits[1])
    return int(value) if isinstance(value, int) and value > 0 else _DEFAULT_THRESHOLD


def _expected(behaviour: object) -> tuple[str, ...]:
    codes = behaviour.get("expected_codes") if isinstance(behaviour, Mapping) else None
    return tuple(sorted(map(str, codes))) if isinstance(codes, (list, tuple)) else ()


def _mapping(value: object, what: str) -> Mapping[str, JSON]:
    if isinstance(value, Mapping):
        return value
    raise RecordRefused(f"{what} must be a JSON object, not {type(value).__name__}.")
