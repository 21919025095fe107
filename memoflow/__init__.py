"""Budgeted, recorded, safely retried model calls, with one SQL database as the only infrastructure."""

from __future__ import annotations

__all__ = ["__version__"]

__version__ = "0.1.0"
