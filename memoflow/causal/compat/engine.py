"""The checks of the compatibility profile, in the order of the Causal Memory Layer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from memoflow.canonical import JSON
from memoflow.causal._frozen import thaw
from memoflow.causal.classes import record_class
from memoflow.causal.compat.config import CompatConfig, CustomRule
from memoflow.causal.findings import AuditResult, Finding, Severity
from memoflow.causal.lineage import REFERENCE_CAP, Lineage
from memoflow.causal.record import CausalRecord

__all__ = ["audit_compat"]

_GAP = "unobserved_parent"


def audit_compat(records: Iterable[CausalRecord], config: CompatConfig | None = None) -> AuditResult:
    """Audit a log by the rules R1 to R4 and those of the configuration.

    Time grows with the log, with rules times triggered records, and, for R3, with secrets times network
    actions of one process: its findings name every secret before, by definition.
    """
    log = _Log(list(records), config or CompatConfig())
    findings = tuple(chain(_r1(log), _r2_r4(log), _r3(log), _custom(log), _cause_band(log)))
    counted = sum(finding.severity != "OK" for finding in findings)
    return AuditResult(len(log.records), max(0, len(log.records) - counted), findings)


class _Log:
    def __init__(self, records: Sequence[CausalRecord], config: CompatConfig) -> None:
        self.records, self.config = records, config
        self.lineage = Lineage(records, cap=REFERENCE_CAP)

    def finding(
        self, code: str, record_id: str, message: str, chain_ids: Sequence[str] = (), **context: JSON
    ) -> Finding:
        """A finding, with its context where the configuration asks for one."""
        severity: Severity = "WARN" if code.startswith(("CML-AUDIT-R2-", "CML-AUDIT-R4-")) else "FAIL"
        kept = context if self.config.include_context else {}
        return Finding(code, severity, record_id, message, tuple(chain_ids), kept)


def _r1(log: _Log) -> Iterator[Finding]:
    """Reference integrity: a parent is in the log."""
    for record in log.records if log.config.enabled("R1") else ():
        if (parent := record.parent_cause) is not None and parent not in log.lineage:
            yield log.finding(
                "CML-AUDIT-R1-MISSING_PARENT",
                record.id,
                f"parent_cause '{parent}' does not exist in the log.",
                missing_parent=parent,
                record_action=record.action,
                record_permitted_by=record.permitted_by,
                known_record_count=len(log.lineage),
            )


def _r2_r4(log: _Log) -> Iterator[Finding]:
    """Gap marking and ambiguous roots: what has no parent is a root or a marked gap."""
    prefix = log.config.root_event_prefix
    for record in log.records:
        permitted = record.permitted_by
        if record.parent_cause is not None or permitted == _GAP:
            continue
        if not isinstance(permitted, str):
            near_miss = False
        elif permitted.startswith(prefix):
            continue
        else:
            # The near miss keeps R2 silent even where R4 is switched off.
            near_miss = bool(prefix[:-1]) and permitted.startswith(prefix[:-1])
        if near_miss and log.config.enabled("R4"):
            yield _ambiguous_root(log, record)
        elif not near_miss and log.config.enabled("R2"):
            yield _unmarked_gap(log, record)


def _unmarked_gap(log: _Log, record: CausalRecord) -> Finding:
    return log.finding(
        "CML-AUDIT-R2-GAP_NOT_MARKED",
        record.id,
        f"Causal gap: parent_cause=null but permitted_by='{thaw(record.permitted_by)}' (expected '{_GAP}').",
        parent_cause=None,
        permitted_by=record.permitted_by,
        expected_gap_marker=_GAP,
    )


def _ambiguous_root(log: _Log, record: CausalRecord) -> Finding:
    prefix = log.config.root_event_prefix
    return log.finding(
        "CML-AUDIT-R4-AMBIGUOUS_ROOT",
        record.id,
        f"Near-miss root label: permitted_by='{record.permitted_by}' looks like '{prefix}' but is missing "
        f"the required separator. Did you mean '{prefix}<cause>'?",
        permitted_by=record.permitted_by,
        expected_root_prefix=prefix,
        suggested_root_form=f"{prefix}<cause>",
    )


def _r3(log: _Log) -> Iterator[Finding]:
    """Lineage of secrets: what a process sends after it saw a secret descends from one it saw."""
    if not log.config.enabled("R3"):
        return
    processes: dict[int | None, list[CausalRecord]] = {}
    for record in sorted(log.records, key=lambda record: record.timestamp):
        processes.setdefault(record.actor.pid, []).append(record)
    for records in processes.values():
        secrets: dict[str, None] = {}
        for record in records:
            if log.config.secrets.match(record.object):
                secrets[record.id] = None
            if secrets and record.action in log.config.net_out_actions:
                ancestors = log.lineage.line_ids(record.id)
                if secrets.keys().isdisjoint(ancestors):
                    yield _unlinked(log, record, list(secrets), ancestors)


def _unlinked(log: _Log, record: CausalRecord, secrets: list[str], ancestors: set[str]) -> Finding:
    pid, what = record.actor.pid, f"NET_OUT '{record.action}'"
    return log.finding(
        "CML-AUDIT-R3-SECRET_NET_MISSING_CHAIN",
        record.id,
        f"{what} (pid={pid}) has no causal link to preceding SECRET access(es): {secrets}.",
        secrets,
        pid=pid,
        net_out_action=record.action,
        preceding_secret_ids=secrets,
        ancestor_ids=sorted(ancestors),
    )


def _custom(log: _Log) -> Iterator[Finding]:
    """The configuration's rules, each over the whole log."""
    classes = [record_class(record) for record in log.records] if log.config.custom_rules else []
    for rule in log.config.custom_rules:
        if not log.config.enabled(rule.id):
            continue
        for record, action_class in zip(log.records, classes, strict=True):
            if action_class == rule.trigger_class and not _satisfied(log, rule, record):
                yield _broken(log, rule, record)


def _satisfied(log: _Log, rule: CustomRule, record: CausalRecord) -> bool:
    return any(
        (rule.require_class is None or record_class(ancestor) == rule.require_class)
        and (rule.require_prefix is None or _begins(ancestor.permitted_by, rule.require_prefix))
        for ancestor in log.lineage.upward(record.id)
        if ancestor.id != record.id
    )


def _begins(permitted_by: JSON, prefix: str) -> bool:
    return isinstance(permitted_by, str) and permitted_by.startswith(prefix)


def _broken(log: _Log, rule: CustomRule, record: CausalRecord) -> Finding:
    context: dict[str, JSON] = {}
    if log.config.include_context:
        context["rule_id"] = rule.id
        context["trigger_class"] = rule.trigger_class.name
        context["ancestor_ids"] = sorted(log.lineage.line_ids(record.id))
        if rule.require_class is not None:
            context["required_ancestor_class"] = rule.require_class.name
        if rule.require_prefix is not None:
            context["required_ancestor_permitted_by_prefix"] = rule.require_prefix
    message = f"Custom rule {rule.id}: {rule.description}"
    return Finding(rule.code, rule.severity, record.id, message, (), context)


def _cause_band(log: _Log) -> Iterator[Finding]:
    """The experimental Cause Band codes of a sidecar; they are about a case, not a record."""
    band = log.config.cause_band
    if band is None:
        return
    for code in band.predicted_codes:
        yield log.finding(
            code,
            str(band.case_id),
            f"Experimental Cause Band finding from sidecar fixture: {code}. "
            "This finding is non-normative and opt-in only.",
            band.bands,
            experimental=True,
            case_id=band.case_id,
        )
