"""The judges that a runtime is opened with, made of rules, policies and settings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from memoflow.canonical import Digester
from memoflow.errors import ConfigurationError
from memoflow.ledger.database import Database
from memoflow.turn import Judge

if TYPE_CHECKING:
    from memoflow.causal.strict.rules import StrictRules
    from memoflow.inspection import Inspector
    from memoflow.settings import MemoflowSettings

__all__ = ["configured_judges"]

_HOW: Final = {"inspection_mode", "inspection_on_ask"}
"""Settings that say how to inspect, and not whether."""


def configured_judges(
    database: Database,
    settings: MemoflowSettings,
    digester: Digester,
    *,
    audit_rules: StrictRules | Path | str | None,
    inspection: Inspector | Path | str | None,
) -> Iterator[Judge]:
    """The causal gate and the inspecting judge, as far as they are asked for.

    Raises:
        ConfigurationError: a file cannot be used, or what reads it is not installed.
    """
    rules = settings.audit_rules if audit_rules is None else audit_rules
    inspected = settings.inspection if inspection is None else inspection
    # Here and not at the top: only programs that have rules pay for what reads them.
    if rules is not None:
        from memoflow.causal.config import load_strict
        from memoflow.causal.gate import CausalJudge

        read = load_strict(Path(rules)) if isinstance(rules, (str, Path)) else rules
        yield CausalJudge(database, read, digester)
    if inspected is None and (said := sorted(settings.model_fields_set & _HOW)):
        raise ConfigurationError(
            f"{', '.join(said)} is set, but nothing says by what to inspect, so nothing would be. Set "
            "inspection (MEMOFLOW_INSPECTION) to a policy file or to shipped, or take it away."
        )
    if inspected is not None:
        from memoflow.inspection.gate import InspectionJudge, inspector_of

        mode, on_ask = settings.inspection_mode, settings.inspection_on_ask
        yield InspectionJudge(inspector_of(inspected, mode=mode, on_ask=on_ask, digester=digester))
