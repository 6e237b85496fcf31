"""Recipe values from files, settings and plans, merged into a recipe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from caps_med.errors import InvalidInput, InvalidParameter
from training.engine.recipe import Recipe, merged, validated
from training.yaml_files import read_yaml, read_yaml_text


def build_recipe(kind: type[Recipe], layers: Sequence[Mapping[str, Any]]) -> Recipe:
    """A recipe from several mappings; later ones take precedence, nested ones are merged.

    Raises:
        InvalidParameter: an unknown name or a value out of range.
    """
    values: dict[str, Any] = {}
    for layer in layers:
        values = merged(values, layer)
    return validated(kind, values)


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
            raise InvalidParameter(
                f"--set {setting}: must be NAME=VALUE, such as augmentation.noise=0.1"
            )
        try:
            value: Any = read_yaml_text(text, f"--set {name}")
        except InvalidInput as error:
            raise InvalidParameter(str(error)) from error
        for part in reversed(name.split(".")):
            value = {part: value}
        values = merged(values, value)
    return values


def _read_yaml(file: Path) -> dict[str, Any]:
    values = read_yaml(file, f"--recipe {file}")
    if not isinstance(values, dict):
        raise InvalidInput(f"--recipe {file}: must be a mapping of names to values")
    return values
