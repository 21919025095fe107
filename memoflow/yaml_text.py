"""Strict YAML: plain values, in which no key stands twice. Needs PyYAML, which some extras bring."""

from __future__ import annotations

from typing import Any

__all__ = ["YAMLRefused", "parse_yaml"]


class YAMLRefused(ValueError):
    """A text is no YAML document that is read here. Its message may quote the text.

    Attributes:
        line: where, counted from 1, as far as it is known.
        twice: whether a key stands twice in one mapping.
    """

    def __init__(self, problem: str, line: int | None = None, *, twice: bool = False) -> None:
        self.line, self.twice = line, twice
        super().__init__(problem)


def parse_yaml(data: bytes) -> Any:
    """The only document of a text as plain values; None if it is empty. Nothing in it is run.

    Raises:
        ModuleNotFoundError: PyYAML is not installed.
        YAMLRefused: it is malformed, gives a key twice, or holds what has no plain value.
    """
    import yaml

    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        """The safe loader, which looks at the keys before it takes one of two."""

        def get_single_node(self) -> Any:
            node = super().get_single_node()
            _check_keys(yaml, node)
            return node

    try:
        return yaml.load(data, Loader)
    except YAMLRefused:
        raise
    except yaml.MarkedYAMLError as error:
        line = None if error.problem_mark is None else error.problem_mark.line + 1
        raise YAMLRefused(str(error), line) from None
    except Exception as error:
        # PyYAML lets through what its constructors raise: AttributeError, IndexError, KeyError, ValueError
        # and RecursionError among them (https://github.com/yaml/pyyaml/issues/899).
        raise YAMLRefused(str(error) or type(error).__name__) from None


def _check_keys(yaml: Any, node: Any) -> None:
    """Of two values under one key YAML would take the last."""
    rest, seen = [node], set()
    while rest:
        one = rest.pop()
        # An alias may lead back to what it stands in.
        if id(one) in seen:
            continue
        seen.add(id(one))
        match one:
            case yaml.MappingNode(value=pairs, start_mark=mark):
                _check_mapping([key.value for key, _ in pairs if isinstance(key, yaml.ScalarNode)], mark)
                rest += [part for pair in pairs for part in pair]
            case yaml.SequenceNode(value=parts):
                rest += parts


def _check_mapping(keys: list[str], mark: Any) -> None:
    known: set[str] = set()
    for key in keys:
        if key in known:
            line = mark.line + 1
            problem = f"the key {key!r} stands twice, in line {line} or after it"
            raise YAMLRefused(problem, line, twice=True)
        known.add(key)
