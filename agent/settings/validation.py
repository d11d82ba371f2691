"""Mistakes that pydantic finds in a settings file, in the words of who has to mend them. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from tiltyard.runtime.settings.mistakes import Mistake, unknown

_RULES = {
    "bool": "must be true or false",
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "finite_number": "must be a finite number",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "greater_than": "must be more than {gt:g}",
    "greater_than_equal": "must be at least {ge}",
    "int_from_float": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_type": "must be a whole number",
    "less_than_equal": "must be at most {le}",
    "literal_error": "must be {expected}",
    "path_type": "must be a path in quotes",
    "string_type": "must be a text in quotes",
    "tuple_type": "must be a list",
    "value_error": "{error}",
}
"""By the types of errors of pydantic-core; others are told in its words."""


def mistakes_of(error: ValidationError, model: type[BaseModel]) -> Iterator[Mistake]:
    """Tell all that is wrong with the settings of a model."""
    for one in error.errors():
        if one["type"] == "extra_forbidden":
            yield unknown(one["loc"], model.model_fields)
        else:
            yield Mistake(one["loc"], _text(one), _mend(one, model))


def _text(one: ErrorDetails) -> str:
    context: Mapping[str, Any] = one.get("ctx", {})
    rule = _RULES.get(one["type"], "").format(**context) or one["msg"]
    return rule if one["type"] == "value_error" else f"{rule}, and is {one['input']!r}"


def _mend(one: ErrorDetails, model: type[BaseModel]) -> str:
    field = model.model_fields[str(one["loc"][0])]
    if field.default_factory is not None or field.default in {None, ""}:
        return "correct it, or take it out"
    default = field.get_default()
    shown = list(default) if isinstance(default, tuple) else default
    return f"correct it, or take it out for the default, {shown}"
