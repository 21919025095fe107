"""What a demo says about itself."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console

__all__ = ["Claims"]


@dataclass(slots=True)
class Claims:
    """What the demo says about itself, checked; the exit code depends on nothing else."""

    console: Console
    broken: int = 0

    def check(self, sentence: str, holds: bool) -> None:
        """Print a claim and whether it holds."""
        self.broken += not holds
        mark = "[green]✓[/]" if holds else "[red]✗[/]"
        self.console.print(f"  {mark} {sentence}")
