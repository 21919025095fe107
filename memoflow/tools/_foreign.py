"""A tool whose schema comes from elsewhere, not from the signature of a function."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from memoflow.declarations import Inspection
from memoflow.tools._arguments import Check
from memoflow.tools._checks import ApprovalMode, EffectClass, check_pattern
from memoflow.tools._tool import Tool, make_tool

__all__ = ["schema_tool"]


def schema_tool(
    function: Callable[..., Any],
    *,
    name: str,
    version: str,
    effect: EffectClass,
    schema: Mapping[str, Any],
    check: Check,
    names: frozenset[str],
    namespace: str | None = None,
    description: str = "",
    timeout: float | None = None,
    approval: ApprovalMode | None = None,
    inspect: Inspection | None = None,
) -> Tool[..., Any]:
    """A tool that offers a JSON Schema as it is.

    Args:
        function: called with the arguments as one JSON object and ``call: ToolCall`` by keyword.
        name: as the model calls it; under the same rule as any tool's, and never changed.
        version: 1 to 64 characters, part of the identity.
        effect: what may be done after a crash; there is no default.
        schema: what the model is offered.
        check: says what is wrong with arguments, after they were read as strict JSON.
        names: the keys that may be repeated in a refusal: those the schema declares.
        namespace: the provider's tool namespace.
        description: what the model reads.
        timeout: seconds one execution may take.
        approval: ``human`` if a person has to allow each call.
        inspect: what a call does and which arguments decide it.

    Raises:
        InvalidTool: something about the tool cannot work; the message says what to change.
    """
    # Here and not at the top: importing memoflow is to be cheap, and this one brings pydantic.
    from memoflow.tools._signature import Shape

    return make_tool(
        function,
        name=check_pattern("Tool name", name),
        namespace=namespace,
        version=version,
        effect=effect,
        description=description,
        timeout=timeout,
        approval=approval,
        inspect=inspect,
        schema=schema,
        shape=Shape(None, None, wants_call=True, check=check),
        names=names,
    )
