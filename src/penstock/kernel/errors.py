"""The exception tree. Every error has a stable code, says what happened and what to do.

PenstockError                PN000
├── BadSetting               PN001
├── NoDatabase               PN002
├── DatabaseUnreachable      PN003
├── MissingExtra             PN004
├── WrongUsage               PN005
├── Refused                  PN006
├── NotPermitted             PN007
├── PostgresFailed           PN008
├── NotInTransaction         PN009
├── NotOpened                PN010
├── NotFound                 PN011
├── SchemaMissing            PN101
├── SchemaTooNew             PN102
├── SchemaDrift              PN103
├── MigrationChanged         PN104
├── ForeignObject            PN105
├── AppendOnly               PN106
├── MigrationFailed          PN107
├── BadLease                 PN201
├── NotReplayable            PN202
├── Paused                   PN203
├── LeaseLost                PN204
├── ReasonRequired           PN205
├── BadHandler               PN206
├── BadPayload               PN207
└── products: see their own modules; each class registers itself by its code
"""

from typing import ClassVar

from penstock.kernel.catalogue import CATALOGUE, Entry

_CLASSES: dict[str, "type[PenstockError]"] = {}


class PenstockError(Exception):
    """Base of all our errors; `happened` and `todo` default to the catalogue."""

    code: ClassVar[str] = "PN000"

    def __init_subclass__(cls) -> None:
        """Register the class by its code, so that a SQLSTATE finds its exception."""
        assert cls.code in CATALOGUE, f"{cls.__name__} has a code without a catalogue entry"
        _CLASSES[cls.code] = cls

    def __init__(self, what: str = "", *, happened: str = "", todo: str = "") -> None:
        self.what = what or self.entry.title
        self.happened = happened or self.entry.happened
        self.todo = todo or self.entry.todo
        super().__init__(self.what)
        # A traceback shows notes: who meets the error in Python reads the remedy as well.
        self.add_note(f"what to do: {self.todo} (penstock explain {self.code})")

    @property
    def entry(self) -> Entry:
        """The catalogue entry of this error's code."""
        return CATALOGUE[self.code]

    @property
    def retryable(self) -> bool:
        """Whether the same call may succeed later, unchanged."""
        return self.entry.retryable

    def __str__(self) -> str:
        title = f"{self.code} {self.entry.title}"
        return title if self.what == self.entry.title else f"{title}: {self.what}"

    def explain(self) -> str:
        """The full form for people: code, what happened, what to do, where to read more."""
        return (
            f"{self}\n"
            f"  what happened   {self.happened}\n"
            f"  what to do      {self.todo}\n"
            f"  more            penstock explain {self.code}"
        )


def error_for(code: str, what: str, *, happened: str = "", todo: str = "") -> PenstockError:
    """The exception for a `PN` code that SQL raised; an unknown one becomes the base class."""
    if code not in _CLASSES and code in CATALOGUE:
        _enter(code)
    return _CLASSES.get(code, PenstockError)(what, happened=happened, todo=todo)


def _enter(known: str) -> None:
    """Give a code a class where the module with its own was not imported: it is told all the same.

    The command line acts on any queue by name and imports no product for it.
    """

    class ProductError(PenstockError):
        code = known


class BadSetting(PenstockError):
    """A setting is unknown, malformed or contradictory."""

    code = "PN001"


class NoDatabase(PenstockError):
    """No database is named, and this command never starts one by itself."""

    code = "PN002"


class DatabaseUnreachable(PenstockError):
    """No connection could be made, or it broke."""

    code = "PN003"


class MissingExtra(PenstockError):
    """An optional dependency is not installed; the message names the extra."""

    code = "PN004"


class WrongUsage(PenstockError):
    """An argument is missing, unknown or out of range."""

    code = "PN005"


class Refused(PenstockError):
    """A change was not confirmed."""

    code = "PN006"


class NotPermitted(PenstockError):
    """The login lacks a grant; the message names it."""

    code = "PN007"


class PostgresFailed(PenstockError):
    """The embedded server could not be found, started or stopped."""

    code = "PN008"


class NotInTransaction(PenstockError):
    """Publishing outside a transaction would separate the event from its change."""

    code = "PN009"


class NotOpened(PenstockError):
    """The object was used for work before `async with`."""

    code = "PN010"


class NotFound(PenstockError):
    """No item, queue, job or target of that name."""

    code = "PN011"


class SchemaMissing(PenstockError):
    """No schema, or one older than this code supports."""

    code = "PN101"


class SchemaTooNew(PenstockError):
    """The database was migrated by a release this code does not know."""

    code = "PN102"


class SchemaDrift(PenstockError):
    """The database differs from what was installed."""

    code = "PN103"


class MigrationChanged(PenstockError):
    """An applied migration no longer has its text."""

    code = "PN104"


class ForeignObject(PenstockError):
    """A table or function of the same name is not ours."""

    code = "PN105"


class AppendOnly(PenstockError):
    """Rows of this table are never changed or removed."""

    code = "PN106"


class MigrationFailed(PenstockError):
    """The server refused a statement of a migration; the message names the file."""

    code = "PN107"


class BadLease(PenstockError):
    """Limit, token or lease time is out of range, or the token is in use."""

    code = "PN201"


class NotReplayable(PenstockError):
    """The item is not dead or held, or something it needs is no longer its own."""

    code = "PN202"


class Paused(PenstockError):
    """The queue or a part of it is paused."""

    code = "PN203"


class LeaseLost(PenstockError):
    """Another worker took the item over."""

    code = "PN204"


class ReasonRequired(PenstockError):
    """An operator action needs a reason."""

    code = "PN205"


class BadHandler(PenstockError):
    """A handler cannot be registered or called as written."""

    code = "PN206"


class BadPayload(PenstockError):
    """The payload cannot be decoded into what the handler asks for."""

    code = "PN207"
