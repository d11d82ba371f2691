"""A program's settings: a model of pydantic, read from a TOML file and the environment.

All mistakes are reported at once, each with its place and what to do.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Generic, NamedTuple, TypeVar, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from tiltyard.runtime.settings.mistakes import Key, Mistake, SettingsError, in_order, unknown
from tiltyard.runtime.settings.source import Source, read_source, unknown_variables

T = TypeVar("T")

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
    "missing": "is missing",
    "model_type": "must be a table",
    "path_type": "must be a path in quotes",
    "string_too_short": "must not be empty",
    "string_type": "must be a text in quotes",
    "too_long": "must have at most {max_length} entries",
    "tuple_type": "must be a list",
    "value_error": "{error}",
}
"""By the types of errors of pydantic-core; the text of others is pydantic's."""


def _split(value: Any) -> Any:
    return [word for word in value.split(",") if word] if isinstance(value, str) else value


Words = Annotated[tuple[T, ...], BeforeValidator(_split)]
"""A list whose items are separated by commas in the environment."""


class Settings(BaseModel):
    """Base of the settings of a program, and of the tables in them."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_bool_as_number(cls, value: Any, info: ValidationInfo) -> Any:
        if (
            isinstance(value, bool)
            and cls.model_fields[str(info.field_name)].annotation is not bool
        ):
            raise ValueError("must not be true or false")
        return value

    def mistakes(self) -> Iterator[Mistake]:
        """Check the rules between settings, each of which fits by itself."""
        return iter(())


S = TypeVar("S", bound=Settings)


class Reading(NamedTuple, Generic[T]):
    """All that is wrong, and the settings without what does not fit by itself.

    `config` is None when not even the defaults of that fit.
    """

    source: Source
    config: T | None
    mistakes: tuple[Mistake, ...]

    def checked(self) -> T:
        """Return settings without a mistake.

        Raises:
            SettingsError: With all mistakes.
        """
        if self.config is None or self.mistakes:
            raise SettingsError(*self.mistakes)
        return self.config


def read_settings(
    model: type[S], path: Path | None, environment: Mapping[str, str], prefix: str
) -> Reading[S]:
    """Read a file if there is a path, and the variables that begin with `prefix`. Blocks.

    Raises:
        SettingsError: The file cannot be read at all.
    """
    source = read_source(path, environment, prefix, model.model_fields)
    values = {**source.table, **source.environment}
    found = list(unknown_variables(environment, prefix, model.model_fields))
    for _ in range(2):  # the second time without what was wrong
        try:
            config = model.model_validate(values)
        except ValidationError as error:
            found.extend(map(source.located, mistakes_of(error, model)))
            wrong = {mistake.key[0] for mistake in found}
            values = {key: value for key, value in values.items() if key not in wrong}
        else:
            found.extend(map(source.located, config.mistakes()))
            return Reading(source, config, in_order(found))
    return Reading(source, None, in_order(found))


def mistakes_of(error: ValidationError, model: type[BaseModel]) -> Iterator[Mistake]:
    """Describe each error of pydantic; the ValueError of a rule may end in "; " and a hint."""
    for one in error.errors():
        key = one["loc"]
        table, name = _place(model, key)
        fields = {field.alias or name: field for name, field in table.model_fields.items()}
        if one["type"] == "extra_forbidden":
            yield unknown(key, fields)
        elif one["type"] == "missing":
            yield Mistake(key, _RULES["missing"], "set it")
        else:
            text, _, hint = _text(one).partition("; ")
            yield Mistake(key, text, hint or _hint(fields[name]))


def _place(model: type[BaseModel], key: Key) -> tuple[type[BaseModel], str]:
    """Return the table that a key is in, the model or an entry of a list, and its name there."""
    if len(key) < 3:
        return model, str(key[0])
    [entry, *_] = get_args(model.model_fields[str(key[0])].annotation)
    return entry, str(key[2])


def _text(one: ErrorDetails) -> str:
    context: Mapping[str, Any] = one.get("ctx", {})
    rule = _RULES.get(one["type"], "").format(**context) or one["msg"]
    quoted = one["type"] != "value_error" and isinstance(one["input"], str | int | float)
    return f"{rule}, and is {one['input']!r}" if quoted else rule


def _hint(field: FieldInfo) -> str:
    if field.is_required():
        return "correct it"
    if field.default_factory is not None or field.default in {None, "", ()}:
        return "correct it, or take it out"
    default = field.get_default()
    shown = list(default) if isinstance(default, tuple) else default
    return f"correct it, or take it out for the default, {shown}"
