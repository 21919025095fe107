"""What counts as a secret."""

from __future__ import annotations

from dataclasses import dataclass

from memoflow.canonical import JSON
from memoflow.causal._frozen import thaw

__all__ = ["SecretPatterns"]


@dataclass(frozen=True, slots=True)
class SecretPatterns:
    """How the object of a record is known to be a secret.

    Attributes:
        classifications: values of ``object.classification``.
        path_prefixes: how ``object.path``, or an object that is text, begins.
        extensions: how it ends.
    """

    classifications: tuple[str, ...] = ("SECRET",)
    path_prefixes: tuple[str, ...] = ("/secrets/",)
    extensions: tuple[str, ...] = (".key", ".pem")

    def match(self, target: JSON) -> bool:
        """Whether an object is a secret. Case counts."""
        if isinstance(target, dict):
            if target.get("classification") in self.classifications:
                return True
            path = target.get("path", "")
        else:
            path = str(thaw(target))
        return isinstance(path, str) and (
            path.startswith(self.path_prefixes) or path.endswith(self.extensions)
        )
