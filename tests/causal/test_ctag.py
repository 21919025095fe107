"""Causal tags."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoflow.causal.ctag import ActionClass, Ctag, Domain, decode, encode, lineage_hint, next_generation
from memoflow.errors import InvalidRequest


@given(st.integers(0, 0xFFFF))
def test_every_number_of_16_bits_is_a_tag(value: int) -> None:
    """It comes back from its parts."""
    assert decode(value).value == value


@given(
    st.sampled_from(Domain),
    st.sampled_from(ActionClass),
    st.integers(0, 15),
    st.booleans(),
    st.none() | st.text(),
)
def test_what_is_encoded_is_decoded(
    domain: Domain, action_class: ActionClass, generation: int, seal: bool, parent: str | None
) -> None:
    """All parts, with the hint that goes with the parent."""
    hint = lineage_hint(parent, domain, action_class, generation)
    tag = decode(encode(domain, action_class, parent=parent, generation=generation, seal=seal))
    assert tag == Ctag(domain, action_class, generation, hint, seal)
    assert 0 <= hint <= 7
    assert hint == 0 or parent is not None


@pytest.mark.parametrize("value", [-1, 0x10000, True, "1", 1.0, None])
def test_what_is_no_tag_is_refused(value: object) -> None:
    """By type and range."""
    with pytest.raises(InvalidRequest, match="from 0 to 65535"):
        decode(value)  # type: ignore[arg-type]


@pytest.mark.parametrize("generation", [-1, 16])
def test_a_generation_has_four_bits(generation: int) -> None:
    """One that has more is refused; it would change the class."""
    with pytest.raises(InvalidRequest, match="0 to 15"):
        encode(Domain.USER, ActionClass.READ, parent=None, generation=generation)


@pytest.mark.parametrize(
    ("action", "domain", "action_class", "generation"),
    [
        ("read", Domain.AGENT, ActionClass.READ, 15),
        ("EXEC", Domain.AGENT, ActionClass.NONE, 0),
        ("priv", Domain.AGENT, ActionClass.NONE, 0),
        ("x", Domain.AGENT, ActionClass.PRIV, 0),
        ("x", Domain.AGENT, ActionClass.EXEC, 0),
        ("x", Domain.SANDBOX, ActionClass.READ, 0),
        ("x", Domain.BREAK_GLASS, ActionClass.READ, 0),
    ],
)
def test_a_generation_grows_with_power_and_on_leaving_a_domain(
    action: str, domain: Domain, action_class: ActionClass, generation: int
) -> None:
    """Modulo 16; otherwise it is the parent's."""
    parent = Ctag(Domain.AGENT, ActionClass.READ, 15, 0, False)
    assert next_generation(parent, action, domain, action_class) == generation
