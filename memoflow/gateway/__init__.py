"""The gateway: budgets, records and protection for programs that nobody can change.

A program that speaks the API of OpenAI or Anthropic is pointed at it (``base_url``) with a virtual key. What
it asks is reserved on the key's account before it is forwarded, settled after it, and passed through byte for
byte. Needs the extra ``gateway``.
"""

from __future__ import annotations

from memoflow.errors import ConfigurationError

try:
    import httptools  # noqa: F401
    import starlette  # noqa: F401
    import uvicorn  # noqa: F401
except ImportError as error:
    raise ConfigurationError(
        f"The gateway needs the package {error.name!r}, which is not installed. Install "
        "memoflow-runtime[gateway]."
    ) from None

from memoflow.gateway.app import make_app
from memoflow.gateway.keys import new_virtual_key
from memoflow.gateway.server import make_server, serve
from memoflow.gateway.settings import GatewaySettings

__all__ = ["GatewaySettings", "make_app", "make_server", "new_virtual_key", "serve"]
