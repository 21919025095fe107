r"""Credentials by the formats their vendors give them, and by how random a text looks.

Formats are those that vendors document or publish for secret scanning. A pattern whose letters are common
is bounded by ``\b``; one without a checksum or a mark of its own has to stand behind a name such as
``aws_secret_access_key`` to count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from math import log2
from typing import Final

from memoflow.inspection.findings import Severity
from memoflow.inspection.matching import Pattern

__all__ = ["FORMATS", "Format", "Hit", "secrets"]


@dataclass(frozen=True, slots=True)
class Hit:
    """Where a detector found something, in bytes."""

    detector: str
    severity: Severity
    confidence: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Format:
    """One format of credentials; ``group`` of the pattern is the credential itself."""

    detector: str
    severity: Severity
    pattern: Pattern
    confidence: int = 95
    group: int = 0


def _format(
    name: str,
    severity: Severity,
    source: str,
    *needs: str,
    confidence: int = 95,
    group: int = 0,
    ignore_case: bool = False,
) -> Format:
    pattern = Pattern(source, needs=needs, ignore_case=ignore_case)
    return Format(f"secret.{name}", severity, pattern, confidence, group)


# What may stand between the name of a credential and its value, in code, in JSON, in a header.
_IS: Final = r"[\"'\s:=>,\]]{1,10}"

FORMATS: Final = (
    _format("aws_key", "critical", r"(?:AKIA|ASIA|ABIA|ACCA|A3T[A-Z0-9])[A-Z0-9]{16}", "A"),
    _format(
        "aws_secret",
        "critical",
        r"aws.{0,20}(?:secret|key|token).{0,20}" + _IS + r"([A-Za-z0-9/+]{40})(?:[^A-Za-z0-9/+=]|$)",
        "aws",
        confidence=90,
        group=1,
        ignore_case=True,
    ),
    _format("github_pat", "critical", r"gh[pousr]_[A-Za-z0-9_]{36,}", "ghp_", "gho_", "ghu_", "ghs_", "ghr_"),
    _format("github_fine_grained", "critical", r"github_pat_[A-Za-z0-9_]{82}", "github_pat_"),
    _format(
        "gitlab",
        "critical",
        r"(?:gl(?:pat|dt|ft|soat|rt|cbt|ptt|oas|imt|agent|ffct)-|GR1348941)[A-Za-z0-9_-]{20,}",
        "gl",
        "GR1348941",
    ),
    _format("slack", "high", r"xox[abeoprs]-(?:\d+-)?[A-Za-z0-9-]{10,}", "xox"),
    _format("slack_app", "high", r"xapp-\d-[A-Z0-9]+-\d+-[a-z0-9]+", "xapp-"),
    _format(
        "slack_webhook",
        "high",
        r"https://hooks\.slack\.com/(?:services|workflows|triggers)/[A-Za-z0-9+/_]{23,}",
        "hooks.slack.com",
    ),
    _format("jwt", "high", r"eyJ[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]{5,}", "eyJ"),
    _format(
        "private_key",
        "critical",
        r"-----BEGIN (?:(?:RSA|EC|DSA|OPENSSH|ENCRYPTED|PGP|SSH2 ENCRYPTED) )?PRIVATE KEY(?: BLOCK)?-----",
        "PRIVATE KEY",
    ),
    _format("putty_key", "critical", r"PuTTY-User-Key-File-[23]", "PuTTY-User-Key-File"),
    _format(
        "age_key", "critical", r"AGE-SECRET-KEY-1[QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L]{58}", "AGE-SECRET-KEY-1"
    ),
    _format("anthropic", "critical", r"sk-ant-(?:api|admin|oat|sid)\d{2}-[A-Za-z0-9_-]{80,120}", "sk-ant-"),
    _format(
        "openai",
        "critical",
        r"sk-(?:(?:proj|svcacct|admin|None)-[A-Za-z0-9_-]{20,}|[A-Za-z0-9_-]*[A-Za-z0-9]{20}T3BlbkFJ[A-Za-z0-9]{20})",
        "sk-",
    ),
    _format("openai_legacy", "high", r"\bsk-[A-Za-z0-9]{48}\b", "sk-"),
    _format("google_api", "high", r"AIza[A-Za-z0-9_-]{35}", "AIza"),
    _format("google_oauth", "high", r"ya29\.[A-Za-z0-9_-]{20,}", "ya29."),
    _format("google_client_secret", "high", r"GOCSPX-[A-Za-z0-9_-]{28}", "GOCSPX-"),
    _format("stripe", "critical", r"[rs]k_(?:live|test|prod)_[A-Za-z0-9]{10,}", "_live_", "_test_", "_prod_"),
    _format("stripe_webhook", "high", r"\bwhsec_[A-Za-z0-9+/]{32,64}={0,2}", "whsec_"),
    _format(
        "square", "high", r"\bEAAA[A-Za-z0-9_-]{60}|sq0(?:atp|csp)-[A-Za-z0-9\\_-]{22,43}", "EAAA", "sq0"
    ),
    _format("npm", "critical", r"npm_[A-Za-z0-9]{36}", "npm_"),
    _format("npmrc", "high", r"_authToken\s{0,4}=\s{0,4}([A-Za-z0-9+/_=.-]{16,})", "_authToken", group=1),
    _format("pypi", "critical", r"pypi-AgE[A-Za-z0-9_-]{50,}", "pypi-AgE"),
    _format("rubygems", "critical", r"rubygems_[a-f0-9]{48}", "rubygems_"),
    _format("docker", "critical", r"dckr_(?:pat|oat)_[A-Za-z0-9_-]{27,32}", "dckr_"),
    _format("huggingface", "critical", r"\b(?:hf_[A-Za-z]{34}|api_org_[A-Za-z]{34})", "hf_", "api_org_"),
    _format("sendgrid", "critical", r"SG\.[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{16,64}", "SG."),
    _format("mailgun", "high", r"\bkey-[a-f0-9]{32}\b", "key-"),
    _format("mailchimp", "high", r"[0-9a-z]{32}-us\d{1,2}", "-us"),
    _format("twilio", "high", r"\b(?:SK|AC)[0-9a-f]{32}\b", "SK", "AC"),
    _format("telegram", "high", r"\b\d{8,10}:AA[A-Za-z0-9_-]{33}\b", ":AA"),
    _format(
        "discord",
        "high",
        r"\b[MNO][A-Za-z0-9_-]{23,25}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,38}",
        ".",
    ),
    _format(
        "discord_webhook",
        "high",
        r"https://(?:ptb\.|canary\.)?discord(?:app)?\.com/api/webhooks/\d{17,20}/[A-Za-z0-9_-]{60,80}",
        "/api/webhooks/",
    ),
    _format("digitalocean", "critical", r"do[opr]_v1_[a-f0-9]{64}", "_v1_"),
    _format("shopify", "critical", r"shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}", "shp"),
    _format("databricks", "critical", r"\bdapi[a-f0-9]{32}(?:-\d)?\b", "dapi"),
    _format("linear", "high", r"lin_(?:api|oauth)_[A-Za-z0-9]{40,64}", "lin_"),
    _format("notion", "high", r"\b(?:ntn_[A-Za-z0-9]{40,50}|secret_[A-Za-z0-9]{43})\b", "ntn_", "secret_"),
    _format("postman", "high", r"PMAK-[a-f0-9]{24}-[a-f0-9]{34}", "PMAK-"),
    _format("grafana", "high", r"gl(?:c|sa)_[A-Za-z0-9+/_]{32,}={0,2}", "glc_", "glsa_"),
    _format("vault", "critical", r"\bhv[sbr]\.[A-Za-z0-9_-]{24,}", "hvs.", "hvb.", "hvr."),
    _format("terraform", "critical", r"\b[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_=-]{60,70}", ".atlasv1."),
    _format("pulumi", "high", r"\bpul-[a-f0-9]{40}\b", "pul-"),
    _format("sentry", "high", r"\bsntry[su]_[A-Za-z0-9+/=_-]{40,}", "sntrys_", "sntryu_"),
    _format("newrelic", "high", r"NRAK-[A-Z0-9]{27}", "NRAK-"),
    _format("groq", "critical", r"\bgsk_[A-Za-z0-9]{52}\b", "gsk_"),
    _format("xai", "critical", r"\bxai-[A-Za-z0-9]{80}\b", "xai-"),
    _format("perplexity", "high", r"\bpplx-[A-Za-z0-9]{48}\b", "pplx-"),
    _format("openrouter", "critical", r"sk-or-v1-[a-f0-9]{64}", "sk-or-v1-"),
    _format("replicate", "high", r"\br8_[A-Za-z0-9]{37}\b", "r8_"),
    _format("supabase", "critical", r"\bsbp_[a-f0-9]{40}\b", "sbp_"),
    _format("planetscale", "high", r"\bpscale_(?:tkn|pw|oauth)_[A-Za-z0-9=._-]{32,64}", "pscale_"),
    _format("tailscale", "high", r"tskey-[a-z]+-[A-Za-z0-9]+-[A-Za-z0-9]+", "tskey-"),
    _format("cloudflare_origin", "high", r"v1\.0-[a-f0-9]{24}-[a-f0-9]{146}", "v1.0-"),
    _format("artifactory", "high", r"\bAKC[a-zA-Z0-9]{60,73}\b", "AKC"),
    _format(
        "azure_storage",
        "critical",
        r"AccountKey=([A-Za-z0-9+/=]{86,88})",
        "AccountKey=",
        group=1,
    ),
    _format("azure_sas", "high", r"[?&]sig=([A-Za-z0-9%+/]{43,60}(?:=|%3[dD]))", "sig=", group=1),
    _format(
        "basic_auth",
        "high",
        r"[a-zA-Z][a-zA-Z0-9+.-]{1,20}://[^/\s:@\"'<>{}$]{1,100}:([^/\s:@\"'<>{}$*]{3,100})@[A-Za-z0-9\[]",
        "://",
        confidence=80,
        group=1,
    ),
    _format(
        "authorization",
        "high",
        r"authorization[\"']?\s{0,4}[:=]\s{0,4}[\"']?(?:basic|bearer|token)\s+([A-Za-z0-9+/_.~=-]{16,})",
        "authorization",
        confidence=80,
        group=1,
        ignore_case=True,
    ),
    _format(
        "assignment",
        "medium",
        r"(?:api_?key|auth_?token|access_?token|client_?secret|secret_?key|private_?token|passw(?:or)?d|passwd|pwd)"
        r"[\"'\]\s]{0,4}(?:=>|:=|=|:)[\"'\s]{0,4}([^\s\"'<>{}$,;&()\[\]]{8,200})",
        "key",
        "token",
        "secret",
        "pass",
        "pwd",
        confidence=60,
        group=1,
        ignore_case=True,
    ),
)

_RUN: Final = Pattern(r"[A-Za-z0-9+/_-]{24,}")
_ENTROPY: Final = 4.0
_LOOKED_AT: Final = 4_096


def secrets(data: bytes) -> Iterator[Hit]:
    """Credentials in a text: those of a known format, then random letters outside of these."""
    known: list[Hit] = []
    for one in FORMATS:
        for start, end in one.pattern.spans(data, one.group):
            if one.detector != "secret.assignment" or _is_a_value(data[start:end]):
                known.append(Hit(one.detector, one.severity, one.confidence, start, end))
    yield from known
    spans = sorted((hit.start, hit.end) for hit in known)
    at, covered = 0, -1
    for start, end in _RUN.spans(data):
        while at < len(spans) and spans[at][0] <= start:
            covered, at = max(covered, spans[at][1]), at + 1
        if end > covered and _entropy(data[start : min(end, start + _LOOKED_AT)]) >= _ENTROPY:
            yield Hit("secret.generic", "low", 50, start, end)


def _is_a_value(value: bytes) -> bool:
    """Whether what is assigned looks made up by a machine: letters and digits, and not one word of code."""
    return any(48 <= byte <= 57 for byte in value) and any(byte > 64 for byte in value)


def _entropy(run: bytes) -> float:
    """Bits for each byte, by Shannon."""
    size = len(run)
    return -sum(count / size * log2(count / size) for count in Counter(run).values())
