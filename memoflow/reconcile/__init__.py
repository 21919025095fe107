"""The queue of unknown outcomes, and decisions on it: ``rt.reconcile``.

Nothing leaves the queue by itself. A person decides, a retrieved reply proves, or a policy writes off as
spent; each leaves a decision with who, why and the digest of the evidence.
"""

from __future__ import annotations

from memoflow.reconcile._reconciler import Reconciler
from memoflow.reconcile._records import Attempted, Case, Queue

__all__ = ["Attempted", "Case", "Queue", "Reconciler"]
