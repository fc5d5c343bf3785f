"""Tools for the tests of applications that use Penstock; a pytest plugin comes with them."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.testing import clock
    from penstock.testing.crashing import CrashReport, crash_everywhere
    from penstock.testing.draining import drain, published
    from penstock.testing.performing import make_event, perform
    from penstock.testing.signing import signed

__all__ = [
    "CrashReport",
    "clock",
    "crash_everywhere",
    "drain",
    "make_event",
    "perform",
    "published",
    "signed",
]

# Imported when first asked for: pytest loads the plugin, and with it this package, in every suite.
_WHERE = {
    "CrashReport": "crashing",
    "crash_everywhere": "crashing",
    "drain": "draining",
    "published": "draining",
    "make_event": "performing",
    "perform": "performing",
    "signed": "signing",
}


def __getattr__(name: str) -> object:
    if name == "clock":
        return import_module("penstock.testing.clock")
    if name not in _WHERE:
        raise AttributeError(f"penstock.testing has no {name}")
    return getattr(import_module(f"penstock.testing.{_WHERE[name]}"), name)
