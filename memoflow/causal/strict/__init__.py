"""The strict profile: memoflow's own rules for its own records.

A log is append-only, so a cause stands before its effect; whatever is not before a record does not exist for
it. Two relations are kept apart. *Permission* comes down the line of parents alone: an approval in one branch
of parallel calls permits nothing in another. *Taint* and *failure* come through parents and joins alike.
"""

from __future__ import annotations

from memoflow.causal.codes import MEANINGS, Code
from memoflow.causal.strict.audit import Audit, audit_strict
from memoflow.causal.strict.config import strict_rules
from memoflow.causal.strict.rules import StrictRules

__all__ = ["MEANINGS", "Audit", "Code", "StrictRules", "audit_strict", "strict_rules"]
