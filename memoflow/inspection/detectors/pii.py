r"""Personal data by its form, with the checks that tell it from other numbers.

``pii.ssn`` leaves out numbers that are never given (https://www.ssa.gov/employer/randomization.html),
``pii.credit_card`` and ``pii.iban`` need their checksum, and an address of IPv4 has to be one that is
routed on the Internet. What looks like an e-mail address and is followed by ``:`` is how git and scp name a
host.
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import AddressValueError, IPv4Address
from typing import Final

from memoflow.inspection.detectors.secrets import Hit
from memoflow.inspection.matching import Pattern

__all__ = ["iban", "luhn", "pii"]

_EMAIL: Final = Pattern(
    r"[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,24}", needs=("@",)
)
_SSN: Final = Pattern(r"\b(\d{3})-(\d{2})-(\d{4})\b", needs=("-",))
_IPV4: Final = Pattern(r"\b\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}\b", needs=(".",))
_CARD: Final = Pattern(r"\b\d(?:[ -]?\d){12,18}\b")
_IBAN: Final = Pattern(r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,4})?\b")
_PHONE: Final = Pattern(r"\+[1-9]\d{0,2}(?:[ .-]?\(?\d{1,4}\)?){2,5}\d{2}\b", needs=("+",))


def pii(data: bytes) -> Iterator[Hit]:
    """Personal data in a text."""
    for start, end in _EMAIL.spans(data):
        if data[end : end + 1] != b":" or data[end + 1 : end + 2].isspace():
            yield Hit("pii.email", "medium", 90, start, end)
    for start, end in _SSN.spans(data):
        if _is_given(data[start:end]):
            yield Hit("pii.ssn", "high", 90, start, end)
    for start, end in _IPV4.spans(data):
        if _is_public(data[start:end]):
            yield Hit("pii.ipv4", "low", 90, start, end)
    for start, end in _CARD.spans(data):
        if luhn(data[start:end]):
            yield Hit("pii.credit_card", "high", 90, start, end)
    for start, end in _IBAN.spans(data):
        if iban(data[start:end]):
            yield Hit("pii.iban", "high", 90, start, end)
    for start, end in _PHONE.spans(data):
        if sum(48 <= byte <= 57 for byte in data[start:end]) >= 9:
            yield Hit("pii.phone", "low", 60, start, end)


def luhn(text: bytes) -> bool:
    """Whether the digits of a text have the checksum of a card number."""
    digits = [byte - 48 for byte in text if 48 <= byte <= 57]
    doubled = (sum(divmod(2 * digit, 10)) for digit in digits[-2::-2])
    # Sixteen zeros have the right checksum, and are no card.
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0 and len(set(digits)) > 1


def iban(text: bytes) -> bool:
    """Whether a text without its blanks has the checksum of an IBAN (ISO 13616)."""
    letters = text.decode("ascii", "replace").replace(" ", "")
    if not (15 <= len(letters) <= 34 and letters.isascii() and letters.isalnum()):
        return False
    moved = letters[4:] + letters[:4]
    return int("".join(str(int(letter, 36)) for letter in moved)) % 97 == 1


def _is_given(text: bytes) -> bool:
    area, group, serial = text.split(b"-")
    return area not in (b"000", b"666") and area < b"900" and group != b"00" and serial != b"0000"


def _is_public(text: bytes) -> bool:
    try:
        return IPv4Address(text.decode("ascii")).is_global
    except AddressValueError:
        return False
