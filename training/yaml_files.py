"""YAML files of the user."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml
from yaml.constructor import ConstructorError

from caps_med.errors import InvalidInput


class _Loader(yaml.SafeLoader):
    """Refuses keys that are given twice, of which the last would count, and endless values."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self.deep_construct = True  # what an alias means is complete, or contains the alias

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:  # noqa: ANN401 - any value
        if node in self.recursive_objects:
            what = "an alias refers to what it is a part of"
            raise ConstructorError(None, None, what, node.start_mark)
        return super().construct_object(node, deep)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[tuple[str, object]] = set()
        for key, _ in node.value:
            known = key.tag, key.value
            if isinstance(key, yaml.ScalarNode) and known in seen:
                what = f"{key.value} is given twice: leave one out"
                raise ConstructorError(None, None, what, key.start_mark)
            seen.update([known] if isinstance(key, yaml.ScalarNode) else ())
        return super().construct_mapping(node, deep)


def read_yaml(file: Path, called: str) -> object:
    """What a file holds.

    Args:
        called: the file in messages.

    Raises:
        InvalidInput: it cannot be read, or is not YAML; the message tells the line.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"{called}: cannot be read as YAML: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{called}: cannot be read as YAML: it is not UTF-8 text") from error
    return read_yaml_text(text, called)


def read_yaml_text(text: str, called: str) -> object:
    """What a text holds; as `read_yaml`.

    Raises:
        InvalidInput: it is not YAML, gives a key twice, or contains itself.
    """
    try:
        return yaml.load(text, _Loader)  # noqa: S506 - a safe one
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f"line {mark.line + 1}: " if mark else ""
        problem = getattr(error, "problem", None) or getattr(error, "reason", "not YAML")
        raise InvalidInput(f"{called}: cannot be read as YAML: {line}{problem}") from error
    except RecursionError as error:
        raise InvalidInput(f"{called}: cannot be read as YAML: it is nested too deeply") from error
    except ValueError as error:  # a date of no calendar, a number of too many digits
        raise InvalidInput(f"{called}: cannot be read as YAML: {error}") from error
