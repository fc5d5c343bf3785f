"""What is known about a setting besides its value."""

from dataclasses import dataclass

from penstock.kernel.settings import parse
from penstock.kernel.settings.names import PREFIX


@dataclass(frozen=True, slots=True)
class Spec:
    """What stands beside a field: its group, its meaning, how it is read, its other names."""

    group: str
    doc: str
    parse: parse.Parser
    aliases: tuple[str, ...] = ()
    secret: bool = False


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table: a field of Settings with its name, default and specification."""

    name: str
    default: object
    spec: Spec

    @property
    def env_names(self) -> tuple[str, ...]:
        """The variables that set it: our own name first, then the accepted others."""
        return (f"{PREFIX}{self.name.upper()}", *self.spec.aliases)
