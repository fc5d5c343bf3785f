"""Finds the user's application and gives it the settings of this command line."""

import importlib
import sys
from pathlib import Path

from penstock.application import Penstock
from penstock.cli.invocation import Invocation
from penstock.kernel.errors import WrongUsage
from penstock.kernel.settings import Settings, with_values

DEFAULT_ATTRIBUTE = "ps"


def load_application(invocation: Invocation, **values: object) -> Penstock:
    """The object that --app names, or one without handlers; `values` replace its settings."""
    application = _find(invocation.app) if invocation.app else Penstock(settings=Settings())
    settings = application.settings if invocation.app else invocation.settings
    # The command line goes before what the application names itself; the environment behind.
    for name in ("database_url", "direct_url", "ledger_url"):
        if name in invocation.overrides or getattr(settings, name) is None:
            settings = with_values(settings, **{name: getattr(invocation.settings, name)})
    given = {name: value for name, value in values.items() if value is not None}
    application.use(with_values(settings, **given) if given else settings)
    return application


def _find(target: str) -> Penstock:
    module_name, _, attribute = target.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise WrongUsage(
            f"there is no module {module_name} here",
            todo=f"run it where `import {module_name}` works, or set PYTHONPATH.",
        ) from error
    found = getattr(module, attribute or DEFAULT_ATTRIBUTE, None)
    if not isinstance(found, Penstock):
        raise WrongUsage(
            f"{module_name} has no Penstock object named {attribute or DEFAULT_ATTRIBUTE}",
            todo="name it: --app MODULE:ATTRIBUTE.",
        )
    return found
