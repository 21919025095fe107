"""Evidence of a simulated run of each provider, made once."""

from __future__ import annotations

from functools import cache

import pytest

from certification.live.evidence import Evidence
from certification.live.provider import Provider
from tests.certification.live._runs import PROVIDERS, as_live, script, simulate, simulated


@cache
def _made(provider: Provider) -> Evidence:
    with simulated(script()) as (_, base_url):
        return simulate(provider, base_url)


@pytest.fixture(params=PROVIDERS, ids=lambda provider: provider.name)
def provider(request: pytest.FixtureRequest) -> Provider:
    """Each of the providers."""
    chosen: Provider = request.param
    return chosen


@pytest.fixture
def evidence(provider: Provider) -> Evidence:
    """Evidence of a simulated run; never changed, since it cannot be."""
    return _made(provider)


@pytest.fixture
def live(evidence: Evidence) -> Evidence:
    """The same as if it had been live."""
    return as_live(evidence)
