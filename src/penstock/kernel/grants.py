"""Which `penstock grant` would give a right that a login lacks, from the packaged SQL itself."""

import re
from pathlib import Path

PRODUCTS = ("outbox", "intake", "payments", "inbox")
_PACKAGE = Path(__file__).parent.parent
_FUNCTION = re.compile(r"permission denied for function (\w+)")
_GRANT = re.compile(r"grant\s+execute\s+on\s+function\s[^;]*?\bto\s+([^;]+);", re.IGNORECASE)
_CONFIGURE = "to look penstock_readonly, to act penstock_operator, to configure penstock_control"


def missing_grant(message: str) -> str:
    """The command that would give the missing right, as far as the server's message tells."""
    named = _FUNCTION.search(message)
    roles = _roles_of(named.group(1)) if named else []
    if roles:
        return f"let an administrator run {' or '.join(map(_command, roles))}"
    for product in PRODUCTS:
        if product in message:
            return (
                f"let an administrator run {_command(f'penstock_{product}_executor')} for a worker,"
                f" or {_command(f'penstock_{product}_ingest')} for a producer"
            )
    return f"let an administrator run {_command('ROLE')}; {_CONFIGURE}"


def _command(role: str) -> str:
    return f'`penstock grant {role} to LOGIN --reason "..."`'


def _roles_of(function: str) -> list[str]:
    """Who may execute it; one file holds one function and its grants, and bears its name."""
    found: list[str] = []
    for path in sorted(_PACKAGE.glob(f"*/sql/functions/{function}.sql")):
        for roles in _GRANT.findall(path.read_text("utf-8")):
            found += [role.strip() for role in roles.split(",")]
    return list(dict.fromkeys(found))
