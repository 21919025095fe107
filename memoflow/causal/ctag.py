"""The causal tag: 16 bits that say where an action came from and what kind it is.

From the highest bit: domain 4, class 4, generation 4, lineage hint 3, seal 1. The hint is three bits of a
hash over the parent's id and the other fields: enough to see that a tag was copied to another place, not
enough to prove anything. Layout and constants are those of the Causal Memory Layer.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from memoflow.canonical import JSON
from memoflow.errors import InvalidRequest

__all__ = ["ActionClass", "Ctag", "Domain", "decode", "encode", "lineage_hint", "next_generation"]

_FNV_OFFSET: Final = 0xCBF29CE484222325
_FNV_PRIME: Final = 0x100000001B3
_64_BITS: Final = 2**64 - 1


class Domain(IntEnum):
    """Where an action came from."""

    UNKNOWN = 0
    KERNEL = 1
    PLATFORM = 2
    SERVICE = 3
    USER = 4
    ADMIN = 5
    CI_CD = 6
    TENANT_A = 7
    TENANT_B = 8
    TENANT_C = 9
    SANDBOX = 10
    UNTRUSTED = 11
    THIRD_PARTY = 12
    AGENT = 13
    BREAK_GLASS = 14
    RESERVED = 15


class ActionClass(IntEnum):
    """What kind of action it is; rules are about classes."""

    NONE = 0
    READ = 1
    WRITE = 2
    EXEC = 3
    NET_OUT = 4
    NET_IN = 5
    IPC = 6
    PRIV = 7
    CONFIG = 8
    SECRET = 9
    CRYPTO = 10
    FIN_TX = 11
    DATA_EGRESS = 12
    ML_ACTION = 13
    OVERRIDE = 14
    SYSTEM = 15


@dataclass(frozen=True, slots=True)
class Ctag:
    """A tag taken apart."""

    domain: Domain
    action_class: ActionClass
    generation: int
    hint: int
    seal: bool

    @property
    def value(self) -> int:
        """The 16 bits."""
        return (
            self.domain << 12
            | self.action_class << 8
            | self.generation << 4
            | self.hint << 1
            | int(self.seal)
        )

    def to_dict(self) -> dict[str, JSON]:
        """Plain JSON with the names of the Causal Memory Layer."""
        return {
            "raw": f"0x{self.value:04X}",
            "dom": int(self.domain),
            "dom_name": self.domain.name,
            "class": int(self.action_class),
            "class_name": self.action_class.name,
            "gen": self.generation,
            "lhint": self.hint,
            "seal": self.seal,
        }


def encode(
    domain: Domain, action_class: ActionClass, *, parent: str | None, generation: int = 0, seal: bool = False
) -> int:
    """The tag of a record.

    Args:
        parent: the id of the record that caused it; None for a root.
        generation: 0 to 15.

    Raises:
        InvalidRequest: the generation does not fit into four bits.
    """
    if not 0 <= generation <= 15:
        raise InvalidRequest(f"The generation of a causal tag is from 0 to 15, not {generation}.")
    hint = lineage_hint(parent, domain, action_class, generation)
    return Ctag(domain, action_class, generation, hint, seal).value


def decode(tag: int) -> Ctag:
    """A tag taken apart.

    Raises:
        InvalidRequest: it is no number of 16 bits.
    """
    if isinstance(tag, bool) or not isinstance(tag, int) or not 0 <= tag <= 0xFFFF:
        raise InvalidRequest("A causal tag is an integer from 0 to 65535.")
    return Ctag(Domain(tag >> 12), ActionClass(tag >> 8 & 15), tag >> 4 & 15, tag >> 1 & 7, bool(tag & 1))


def lineage_hint(parent: str | None, domain: int, action_class: int, generation: int) -> int:
    """Three bits that go with this parent and these fields; 0 without a parent."""
    if parent is None:
        return 0
    return (
        _fnv1a_64(parent.encode("utf-8", "surrogatepass")) ^ domain << 4 ^ action_class ^ generation << 2
    ) & 7


def _fnv1a_64(data: bytes) -> int:
    value = _FNV_OFFSET
    for byte in data:
        value = (value ^ byte) * _FNV_PRIME & _64_BITS
    return value


def next_generation(parent: Ctag, action: str, domain: Domain, action_class: ActionClass) -> int:
    """The generation of a child: one more, modulo 16, where power or origin changes, else the parent's.

    That is on an action exec or priv, a class EXEC or PRIV, or another domain, breaking the glass included.
    """
    grows = action.lower() in ("exec", "priv") or action_class in (ActionClass.EXEC, ActionClass.PRIV)
    return (parent.generation + (grows or domain != parent.domain)) % 16
