r"""Dangerous texts in arguments: commands, statements of SQL, and markup that acts where it is shown.

Only what destroys a system or a home is critical. ``rm -rf build`` is what builds do all day; whether it is
meant is told by where the argument came from.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from memoflow.inspection.detectors.secrets import Hit
from memoflow.inspection.findings import Severity
from memoflow.inspection.matching import Pattern

__all__ = ["commands", "statements"]

_RM: Final = (
    r"\brm\s+(?:-[a-zA-Z]+\s+|--[a-z-]+\s+){0,5}(?:-[a-zA-Z]*[rR][a-zA-Z]*"
    r"|--recursive)\s+(?:-[a-zA-Z]+\s+|--[a-z-]+\s+){0,5}"
)
_WIDE: Final = (
    r"[\"']?(?:/|~|\$\{?HOME\}?|/(?:bin|boot|dev|etc|home|lib(?:64)?|opt|proc|root|sbin|srv|sys|usr|var|Users)|\*|\.|\.\.)"
    r"/?\*?[\"']?(?:\s|$|[;&|)])"
)

_DANGERS: Final[tuple[tuple[str, Severity, int, str, tuple[str, ...]], ...]] = (
    ("rm_wide", "critical", 95, _RM + _WIDE, ("rm",)),
    ("rm", "medium", 90, _RM, ("rm",)),
    ("no_preserve_root", "critical", 95, r"--no-preserve-root", ("--no-preserve-root",)),
    ("fork_bomb", "critical", 95, r":\s*\(\s*\)\s*\{\s*:\s*\|\s*:?\s*&\s*\}\s*;\s*:", ("|",)),
    (
        "pipe_to_shell",
        "critical",
        90,
        r"\b(?:curl|wget|fetch)\b[^|;\n]{0,500}\|\s*(?:sudo\s+(?:-\w+\s+)?)?(?:env\s+)?(?:/(?:usr/)?bin/)?(?:ba|z|da|k)?sh\b",
        ("curl", "wget", "fetch"),
    ),
    (
        "run_download",
        "critical",
        85,
        r"\b(?:ba|z|da)?sh\s+(?:-c\s+)?[\"']?(?:<\(|\$\(|`)\s*(?:curl|wget)\b",
        ("curl", "wget"),
    ),
    (
        "decode_to_shell",
        "critical",
        90,
        r"\bbase64\s+(?:-d|-D|--decode)\b[^|;\n]{0,200}\|\s*(?:sudo\s+)?(?:ba|z|da)?sh\b",
        ("base64",),
    ),
    (
        "reverse_shell",
        "critical",
        90,
        r"/dev/(?:tcp|udp)/[^\s/]+/\d+|\bnc(?:at)?\s+(?:-[a-z]+\s+)*-[a-z]*e\s*[\"']?/bin/|\bmkfifo\b.{0,80}\bnc\b",
        ("/dev/tcp", "/dev/udp", "nc"),
    ),
    (
        "device",
        "critical",
        85,
        r"\bdd\b[^\n;|]{0,300}\bof=/dev/(?:sd|nvme|hd|vd|xvd|disk|mmcblk)",
        ("of=/dev/",),
    ),
    ("mkfs", "critical", 85, r"\bmkfs(?:\.\w+)?\s+(?:-\S+\s+){0,9}/dev/", ("mkfs",)),
    ("device_redirect", "critical", 85, r">\s*/dev/(?:sd|nvme|hd|vd|xvd|disk|mmcblk)", ("/dev/",)),
    (
        "powershell_encoded",
        "critical",
        85,
        r"\bpowershell(?:\.exe)?\b.{0,100}\s-e(?:nc|ncodedcommand)?\s+[A-Za-z0-9+/=]{20,}",
        ("powershell",),
    ),
    (
        "find_delete",
        "high",
        80,
        r"\bfind\s+(?:/|~|\$HOME)\S*\s.{0,200}(?:-delete\b|-exec\s+rm\b)",
        ("find",),
    ),
    ("chmod_wide", "high", 80, r"\bchmod\s+(?:-R\s+)(?:777|a\+rwx|o\+w)\s+/", ("chmod",)),
    (
        "persistence",
        "high",
        80,
        r"(?:>>?|\btee(?:\s+-a)?)\s*[\"']?(?:~|\$HOME|/home/[^/\s]+|/root)/\."
        r"(?:ssh/authorized_keys|bashrc|zshrc|profile|bash_profile)"
        r"|(?:>>?|\btee(?:\s+-a)?)\s*[\"']?/etc/cron|\bcrontab\s+(?:-\s|-$|-e\b|[^-\s])",
        ("authorized_keys", "bashrc", "zshrc", "profile", "cron"),
    ),
    ("history", "medium", 70, r"\bhistory\s+-c\b|\bunset\s+HISTFILE\b|>\s*~/\.bash_history", ("hist",)),
    (
        "power",
        "high",
        70,
        r"(?:^|[;&|\n]|\bsudo\s+)\s*(?:shutdown|reboot|halt|poweroff)\b",
        ("shutdown", "reboot", "halt", "poweroff"),
    ),
    ("script_tag", "high", 85, r"<script\b", ("<script",)),
    ("iframe", "medium", 75, r"<iframe\b", ("<iframe",)),
    ("javascript_url", "medium", 70, r"\bjavascript:", ("javascript:",)),
    (
        "event_handler",
        "medium",
        70,
        r"\bon(?:error|load|click|mouseover)\s*=",
        ("onerror", "onload", "onclick", "onmouseover"),
    ),
    ("markdown_image", "high", 85, r"!\[[^\]\n]{0,300}\]\(\s*https?://[^)\s?]+\?[^)\s=]+=", ("![",)),
)
_SHAPES: Final[tuple[tuple[str, Severity, int, Pattern], ...]] = tuple(
    (name, severity, confidence, Pattern(source, needs=needs, ignore_case=True))
    for name, severity, confidence, source, needs in _DANGERS
)
_DROP: Final = Pattern(
    r"\b(?:drop\s+(?:table|database|schema|index|view|user|role)|truncate\s+(?:table\s+)?[a-z_\"`\[]|alter\s+table\s+\S+\s+drop\b)",
    needs=("drop", "truncate"),
    ignore_case=True,
)
_CHANGE: Final = Pattern(
    r"\b(?:delete\s+from\s+[\w.\"`\[\]]+|update\s+[\w.\"`\[\]]+\s+set\s)[^;]*",
    needs=("delete", "update"),
    ignore_case=True,
)
_WHERE: Final = Pattern(r"\bwhere\b|\blimit\s+\d", needs=("where", "limit"), ignore_case=True)
_ALWAYS: Final = Pattern(
    r"\bwhere\s+(?:\(?\s*)?(?:1\s*=\s*1|true\b|'?(\w)'?\s*=\s*'?\w'?\s*$|not\s+false)",
    needs=("where",),
    ignore_case=True,
)
_STACKED: Final = Pattern(
    r"'\s*(?:or|and)\s+'?\d+'?\s*=\s*'?\d+|'\s*;\s*(?:drop|delete|update|insert|alter)\b|\bunion\s+(?:all\s+)?select\b.{0,200}\bfrom\b|--\s*$",
    needs=("'", "union", "--"),
    ignore_case=True,
)


def commands(data: bytes) -> Iterator[Hit]:
    """Commands, markup and statements in a text that is about to be used."""
    for name, severity, confidence, pattern in _SHAPES:
        for start, end in pattern.spans(data):
            yield Hit(f"output.{name}", severity, confidence, start, end)
    yield from statements(data)


def statements(data: bytes) -> Iterator[Hit]:
    """Statements of SQL that destroy more than they name."""
    for start, end in _DROP.spans(data):
        yield Hit("output.sql_drop", "high", 80, start, end)
    for start, end in _CHANGE.spans(data):
        statement = data[start:end]
        if not _WHERE.found_in(statement) or _ALWAYS.found_in(statement):
            yield Hit("output.sql_unbounded", "high", 80, start, end)
    for start, end in _STACKED.spans(data):
        if end > start and not data[start:end].startswith(b"--"):
            yield Hit("output.sql_injection", "medium", 60, start, end)
