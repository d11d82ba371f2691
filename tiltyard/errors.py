"""The base of both programs' errors: a message template and typed fields."""

from dataclasses import dataclass
from typing import ClassVar, dataclass_transform


@dataclass_transform(eq_default=False)
class TemplateError(Exception):
    """An error whose text is `template` filled with its fields; subclasses are dataclasses.

    Each program's own base adds a `reason`, which is translated once on the way out.
    """

    template: ClassVar[str]

    def __init_subclass__(cls) -> None:
        dataclass(eq=False)(cls)

    def __str__(self) -> str:
        return self.template.format_map(vars(self))
