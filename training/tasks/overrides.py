"""Recipe values from files, settings and plans, merged into a recipe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

from caps_med.errors import InvalidInput, InvalidParameter
from caps_med.wording import reason
from training.engine.recipe import Recipe, merged


def build_recipe(kind: type[Recipe], layers: Sequence[Mapping[str, Any]]) -> Recipe:
    """A recipe from several mappings; later ones take precedence, nested ones are merged.

    Raises:
        InvalidParameter: an unknown name or a value out of range.
    """
    values: dict[str, Any] = {}
    for layer in layers:
        values = merged(values, layer)
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        said = reason(first)
        if first["type"] == "extra_forbidden":
            said = f"there is no such value; known are {', '.join(_siblings(kind, first['loc']))}"
        raise InvalidParameter(f"recipe: {where}{': ' if where else ''}{said}") from error


def _siblings(kind: type[BaseModel], place: Sequence[int | str]) -> list[str]:
    """The fields that the model at a place within another one has."""
    for name in place[:-1]:
        annotation = kind.model_fields[str(name)].annotation
        kinds = (annotation, *get_args(annotation))
        kind = next(
            each for each in kinds if isinstance(each, type) and issubclass(each, BaseModel)
        )
    return list(kind.model_fields)


def read_overrides(recipe_file: Path | None, settings: Sequence[str]) -> dict[str, Any]:
    """Recipe values of a YAML file and of ``name=value`` settings (``augmentation.noise=0.1``).

    Raises:
        InvalidInput: the file cannot be read or is not a mapping.
        InvalidParameter: a setting is not ``name=value``.
    """
    values = {} if recipe_file is None else _read_yaml(recipe_file)
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals:
            raise InvalidParameter(f"--set {setting}: name=value is needed")
        try:
            value: Any = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise InvalidParameter(f"--set {setting}: {text!r} is not valid YAML") from error
        for part in reversed(name.split(".")):
            value = {part: value}
        values = merged(values, value)
    return values


def _read_yaml(file: Path) -> dict[str, Any]:
    try:
        values = yaml.safe_load(file.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InvalidInput(f"--recipe {file}: cannot be read as YAML: {error}") from error
    if not isinstance(values, dict):
        raise InvalidInput(f"--recipe {file}: a mapping of names to values is needed")
    return values
