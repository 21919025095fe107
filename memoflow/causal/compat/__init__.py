"""The compatibility profile: the rules, codes, messages and order of the Causal Memory Layer 0.4, exactly.

It is for logs and configurations of that project. Its known weaknesses are kept here on purpose (a forged
approval satisfies, cycles pass, chains end after 256 records); memoflow's own records are audited by
`memoflow.causal.strict`.
"""

from __future__ import annotations

from memoflow.causal.compat.cause_band import CauseBand, evaluate_cause_band
from memoflow.causal.compat.config import CompatConfig, CustomRule, compat_config
from memoflow.causal.compat.engine import audit_compat

__all__ = ["CauseBand", "CompatConfig", "CustomRule", "audit_compat", "compat_config", "evaluate_cause_band"]
