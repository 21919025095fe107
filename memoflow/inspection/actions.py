"""What a call does: as its tool declared, or else as its name and its text suggest.

A declaration is the floor, since whoever registered the tool knows it. What an argument says can only raise
it where that argument is a command: a shell is as severe as what it is told to do.
"""

from __future__ import annotations

import re
from typing import Final

from memoflow.declarations import ACTIONS, Action, Inspection, at_least
from memoflow.inspection.detectors.commands import statements
from memoflow.inspection.matching import Pattern, encoded, first_of

__all__ = ["classify", "sensitive_path", "words_of"]

# Tools of coding agents that only read, and a shell, which does what it is told.
_READERS: Final = frozenset(
    {"Read", "Grep", "Glob", "LS", "NotebookRead", "TodoRead", "WebFetch", "WebSearch", "Bash"}
)
SHELLS: Final = frozenset(
    {"bash", "shell", "sh", "zsh", "exec", "terminal", "powershell", "cmd", "console", "command"}
)
_VERBS: Final[tuple[tuple[Action, frozenset[str]], ...]] = (
    (
        "destructive",
        frozenset(
            {
                "delete",
                "destroy",
                "drop",
                "erase",
                "format",
                "purge",
                "remove",
                "terminate",
                "truncate",
                "wipe",
            }
        ),
    ),
    (
        "privilege_changing",
        frozenset(
            {
                "authorize",
                "chmod",
                "chown",
                "elevate",
                "grant",
                "impersonate",
                "permission",
                "permissions",
                "privilege",
                "privileges",
                "revoke",
                "sudo",
            }
        ),
    ),
    (
        "network",
        frozenset(
            {
                "broadcast",
                "deploy",
                "donate",
                "email",
                "forward",
                "invite",
                "mail",
                "message",
                "pay",
                "post",
                "publish",
                "push",
                "reply",
                "send",
                "share",
                "sms",
                "submit",
                "transfer",
                "tweet",
                "upload",
                "webhook",
                "wire",
            }
        ),
    ),
)
_READ_VERBS: Final = frozenset(
    {
        "check",
        "count",
        "describe",
        "fetch",
        "find",
        "get",
        "grep",
        "list",
        "look",
        "lookup",
        "query",
        "read",
        "search",
        "show",
        "view",
    }
)

_COMMANDS: Final[tuple[tuple[Action, str, tuple[str, ...], bool], ...]] = (
    (
        "side_effecting",
        r"\b(?:mkdir|touch|mv|cp|tee|rm)\b|\bsed\s+-i|>|\bgit\s+(?:commit|add|checkout"
        r"|merge|rebase)\b",
        (),
        True,
    ),
    (
        "network",
        r"\bcurl\b[^|;&\n]*\s(?:--data\S*|--form\S*|--json|--upload-file|(?:-X\s*"
        r"|--request[ =])[\"']?(?:POST|PUT|PATCH|DELETE))",
        ("curl",),
        True,
    ),
    ("network", r"\bcurl\b[^|;&\n]*\s-[a-zA-Z]*[dFT](?:\b|[@\"'])", ("curl",), False),
    (
        "network",
        r"\bwget\b[^|;&\n]*\s(?:--post-data|--post-file|--body-data|--body-file"
        r"|--method[ =](?:POST|PUT|PATCH|DELETE))",
        ("wget",),
        True,
    ),
    ("network", r"(?:^|[|;&\n(]|\bsudo\s)\s*n(?:c|cat|etcat)\s", ("nc", "ncat", "netcat"), True),
    (
        "network",
        r"\bscp\s|\bsftp\s|\brsync\s|\bgit\s+(?:-\S+\s+\S+\s+)*push\b|\b(?:npm|pip|pip3"
        r"|cargo|gem|go|twine|poetry|yarn|pnpm)\s+(?:publish|upload)\b|\bgem\s+push\b"
        r"|\bdocker\s+push\b",
        (),
        True,
    ),
    (
        "network",
        r"\baws\s+s3\s+(?:cp|sync|mv)\b|\baws\s+s3api\s+put-object\b|\bgsutil\s+(?:cp"
        r"|rsync|mv)\b|\brclone\s+(?:copy|sync|move)\b",
        ("aws", "gsutil", "rclone"),
        True,
    ),
    (
        "network",
        r"\bgh\s+(?:gist\s+create|issue\s+(?:create|comment)|pr\s+(?:create|comment)"
        r"|release\s+(?:create|upload)|api\b[^|;&\n]*\s(?:-f|-F|--field|--raw-field"
        r"|--input)\b)",
        ("gh",),
        True,
    ),
    (
        "network",
        r"\b(?:xh|https?|httpie)\s+(?:-\S+\s+)*(?:POST|PUT|PATCH)\b",
        ("post", "put", "patch"),
        True,
    ),
    (
        "network",
        r"/dev/tcp/|\bssh\b[^\n]*<|\bsendmail\b|\bmail\s+-s\b|\b(?:nslookup|dig"
        r"|host)\b[^\n]*(?:\$\(|`)",
        (),
        True,
    ),
    (
        "network",
        r"\brequests\.(?:post|put|patch)\(|\burlopen\([^)]*data\s*=|\bhttpx?\.post\("
        r"|\bfetch\([^)]*method\W+(?:POST|PUT)",
        ("post", "put", "patch", "urlopen", "fetch"),
        True,
    ),
    (
        "privilege_changing",
        r"\b(?:sudo|doas|chmod|chown|setcap|visudo|usermod|useradd|adduser|passwd)\b"
        r"|\bsu\s+-[a-z]|\bsu\s+-?\s*root\b",
        (),
        True,
    ),
    (
        "destructive",
        r"\brm\s+(?:\S+\s+)*?-[a-zA-Z]*[rf]|\brm\s+(?:\S+\s+)*?--(?:recursive|force)\b",
        ("rm",),
        True,
    ),
    (
        "destructive",
        r"\bgit\s+push\b[^|;&\n]*\s(?:--force|-[a-zA-Z]*f)\b|\bgit\s+(?:reset\s+--hard"
        r"|clean\s+-[a-z]*f)|\bgit\s+branch\s+-D\b",
        ("git",),
        True,
    ),
    (
        "destructive",
        r"\bmkfs\b|\bdd\b[^\n|;]*\bof=/dev/|>\s*/dev/(?:sd|nvme|hd|vd|disk)|\bshred\s"
        r"|\bwipefs\b",
        (),
        True,
    ),
    (
        "destructive",
        r"\|\s*(?:sudo\s+)?(?:/(?:usr/)?bin/)?(?:ba|z|da)?sh\b|(?:&&|;)\s*(?:ba|z"
        r"|da)?sh\s+\S",
        ("sh",),
        True,
    ),
    (
        "destructive",
        r"\b(?:shutdown|reboot|poweroff|halt)\b",
        ("shutdown", "reboot", "poweroff", "halt"),
        True,
    ),
    (
        "destructive",
        r"\bfind\b[^\n|;]*(?:-delete\b|-exec\s+rm\b)|\bshutil\.rmtree\(|\brimraf\b",
        ("find", "rmtree", "rimraf"),
        True,
    ),
    (
        "destructive",
        r"\b(?:kubectl|helm)\s+(?:delete|uninstall)\b|\bterraform\s+destroy\b"
        r"|\baws\s+\S+\s+(?:delete|terminate)-|\bdocker\s+(?:system|volume)\s+prune\b",
        (),
        True,
    ),
)
_IN_TEXT: Final[tuple[tuple[Action, Pattern], ...]] = tuple(
    (action, Pattern(source, needs=needs, ignore_case=ignore_case))
    for action, source, needs, ignore_case in _COMMANDS
)
_SENSITIVE: Final = Pattern(
    r"/\.ssh/|/\.aws/|/\.gnupg/|/\.kube/|/\.docker/config|/\.config/gcloud|/etc/(?:passwd|shadow|sudoers)|\.env(?:\.|$|[\s\"';|&)])"
    r"|/\.npmrc|/\.netrc|/\.pypirc|/\.git-credentials|authorized_keys|id_rsa|id_ed25519|id_ecdsa"
    r"|/credentials\b|\bcredentials\.(?:json|ya?ml|toml|ini|csv)\b|/proc/\d*(?:self)?/environ"
    r"|\.pem\b|\.p12\b|\.pfx\b|login\.keychain|wallet\.dat",
    ignore_case=True,
)
_WORD: Final = re.compile("[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+")


def classify(
    tool: str, declared: Inspection | None, commands: str, line: str, least: Action | None = None
) -> Action:
    """The action class of a call.

    Args:
        tool: the name that was called.
        declared: what its registration says.
        commands: those arguments that are commands, as one line.
        line: all values of its arguments as one line.
        least: what is known of a tool that declares nothing: it does at least this, and no more unless its
            name or a command says so.
    """
    said = _by_text(commands) if commands else "read_only"
    if declared is not None:
        return _most(declared.action, said)
    action = _most(_by_name(tool, least), said)
    if at_least(action, "side_effecting") and sensitive_path(line):
        return _most(action, "privilege_changing")
    return action


def sensitive_path(text: str) -> bool:
    """Whether a text names a place where credentials are kept."""
    return _SENSITIVE.found_in(first_of(encoded(text))[0])


def _most(*actions: Action) -> Action:
    return max(actions, key=ACTIONS.index)


def _by_name(tool: str, least: Action | None) -> Action:
    if tool in _READERS:
        return least or "read_only"
    words = words_of(tool)
    known = [verb for word in words if (verb := _verb(word)) is not None]
    if SHELLS & set(words):
        return _most("side_effecting", least or "read_only")
    if not known:
        return least or "side_effecting"
    # The first verb is what is done, the others what it is done to: search_email sends nothing.
    return _most(least or "read_only", *(known if "and" in words else known[:1]))


def words_of(tool: str) -> list[str]:
    """The words of a name, in lower case; that of an MCP tool begins with that of its server."""
    return [word.lower() for word in _WORD.findall(tool.rsplit("__", 1)[-1])]


def _verb(word: str) -> Action | None:
    if word in _READ_VERBS:
        return "read_only"
    return next((action for action, verbs in _VERBS if word in verbs), None)


def _by_text(line: str) -> Action:
    data, cut = first_of(encoded(line))
    # What stands behind it is not known; at the least it may send.
    found: list[Action] = ["network"] if cut else []
    found += [action for action, pattern in _IN_TEXT if pattern.found_in(data)]
    if any(hit.severity == "high" for hit in statements(data)):
        found.append("destructive")
    return _most("read_only", *found)
