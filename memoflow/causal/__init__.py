"""Causal audit: why was this action permitted?

Records say which boundary was crossed, by whom, what permitted it and what caused it. Two profiles audit
them: `strict` are memoflow's own rules, evaluated one record at a time, so that the same code is the gate
before a call and the audit of a log after it; `compat` are the rules of the Causal Memory Layer 0.4, exactly.
"""

from __future__ import annotations

from memoflow.causal.claims import Claim, TakenClaim, ask_for_claims, disagreements, take_claim, with_claim
from memoflow.causal.codes import MEANINGS, Code
from memoflow.causal.compat import CompatConfig, audit_compat, compat_config, evaluate_cause_band
from memoflow.causal.config import load_compat, load_strict, parse_document
from memoflow.causal.ctag import ActionClass, Ctag, Domain
from memoflow.causal.findings import AuditResult, Finding, review_required
from memoflow.causal.jsonl import dump_record, read_jsonl, read_numbered, write_jsonl
from memoflow.causal.lineage import Chain, Lineage, view_chain
from memoflow.causal.record import Actor, CausalRecord, RecordRefused, actor_from_dict, record_from_dict
from memoflow.causal.strict import Audit, StrictRules, audit_strict, strict_rules

__all__ = [
    "MEANINGS",
    "ActionClass",
    "Actor",
    "Audit",
    "AuditResult",
    "CausalRecord",
    "Chain",
    "Claim",
    "Code",
    "CompatConfig",
    "Ctag",
    "Domain",
    "Finding",
    "Lineage",
    "RecordRefused",
    "StrictRules",
    "TakenClaim",
    "actor_from_dict",
    "ask_for_claims",
    "audit_compat",
    "audit_strict",
    "compat_config",
    "disagreements",
    "dump_record",
    "evaluate_cause_band",
    "load_compat",
    "load_strict",
    "parse_document",
    "read_jsonl",
    "read_numbered",
    "record_from_dict",
    "review_required",
    "strict_rules",
    "take_claim",
    "view_chain",
    "with_claim",
    "write_jsonl",
]
