"""YAML files of the user."""

from __future__ import annotations

from pathlib import Path

import yaml

from caps_med.errors import InvalidInput


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
        InvalidInput: it is not YAML.
    """
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f"line {mark.line + 1}: " if mark else ""
        problem = getattr(error, "problem", None) or getattr(error, "reason", "not YAML")
        raise InvalidInput(f"{called}: cannot be read as YAML: {line}{problem}") from error
    except RecursionError as error:
        raise InvalidInput(f"{called}: cannot be read as YAML: it is nested too deeply") from error
    except ValueError as error:  # a date of no calendar, a number of too many digits
        raise InvalidInput(f"{called}: cannot be read as YAML: {error}") from error
