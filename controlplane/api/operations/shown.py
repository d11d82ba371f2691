"""Response models that read the attributes of domain objects."""

from typing import Annotated, Any, Self, TypeVar

from pydantic import AliasGenerator, AliasPath, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

from tiltyard.contract import MEBI, NANO
from tiltyard.runtime.clock import to_ms

_Item = TypeVar("_Item")

Cores = Annotated[float, BeforeValidator(lambda nano_cpus: nano_cpus / NANO)]
Mebibytes = Annotated[float, BeforeValidator(lambda size: size / MEBI)]
Millis = Annotated[int, BeforeValidator(to_ms)]  # Milliseconds, from seconds
RoundTrip = Annotated[float, BeforeValidator(lambda seconds: round(seconds * 1000, 3))]
"""Milliseconds with fractions, from seconds."""
Rounded = Annotated[float, BeforeValidator(lambda number: round(number, 3))]
Count = Annotated[int, BeforeValidator(len)]
Maybe = Annotated[str | None, BeforeValidator(lambda text: text or None)]
First20 = Annotated[list[_Item], BeforeValidator(lambda items: items[:20])]
"""The first ones are enough to show a problem."""
First1000 = Annotated[list[_Item], BeforeValidator(lambda items: items[:1000])]


class Shown(BaseModel):
    """A response object; a field reads the attribute of its name, or the path of `at`."""

    model_config = ConfigDict(
        from_attributes=True,
        serialize_by_alias=True,
        alias_generator=AliasGenerator(serialization_alias=to_camel),
        json_schema_serialization_defaults_required=True,
    )

    @classmethod
    def show(cls, source: object, **more: Any) -> Self:
        """Build from the attributes of `source`; `more` are further values."""
        return cls.model_validate(source).model_copy(update=more)


def at(path: str, default: Any = ...) -> Any:
    """Declare a field of another attribute path; `default` if an attribute is missing."""
    return Field(default, validation_alias=AliasPath(*path.split(".")))
