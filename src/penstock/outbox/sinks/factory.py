"""Makes the sink of a destination; a kind's module, and so its library, is imported when needed."""

import importlib
from collections.abc import Sequence

from penstock.kernel.errors import BadSetting, MissingExtra
from penstock.kernel.outgoing_secrets import outgoing_secret
from penstock.kernel.secrets import Secret
from penstock.kernel.settings import Settings
from penstock.outbox.destinations import Row
from penstock.outbox.sinks.sink import Destination, Make, Sink

MODULES = {
    "http": "penstock.outbox.sinks.http",
    "kafka": "penstock.outbox.sinks.kafka",
    "nats": "penstock.outbox.sinks.nats",
    "stdout": "penstock.outbox.sinks.stdout",
}
_EXTRAS = {"http": "http", "kafka": "kafka", "nats": "nats"}


def destination_of(row: Row, settings: Settings) -> Destination:
    """A row with its secrets; raises BadSetting where none of them can be had."""
    try:
        secrets = _followed(row.secret_refs, settings)
    except ValueError as error:
        raise BadSetting(f"destination {row.name}: {error}") from None
    return Destination(
        row.name, row.kind, row.config, secrets, row.concurrency, row.rate_per_s, row.version
    )


def make_sink(destination: Destination, settings: Settings) -> Sink:
    """The sink, not yet opened; raises BadSetting or MissingExtra."""
    name = MODULES.get(destination.kind)
    if name is None:
        raise BadSetting(f"destination {destination.name}: there is no sink of that kind")
    try:
        make: Make = importlib.import_module(name).make
    except ModuleNotFoundError as error:
        extra = _EXTRAS.get(destination.kind, "all")
        raise MissingExtra(
            f"destination {destination.name} needs {error.name}",
            todo=f"pip install 'penstock[{extra}]'",
        ) from error
    return make(destination, settings)


def _followed(references: Sequence[str], settings: Settings) -> tuple[Secret, ...]:
    """The secrets that can be had; while one is being rotated, the other goes on."""
    found: list[Secret] = []
    problems: list[str] = []
    for reference in references:
        try:
            found.append(outgoing_secret(reference, settings))
        except ValueError as error:
            problems.append(f"a secret {error}")
    if references and not found:
        raise ValueError("; ".join(problems))
    return tuple(found)
