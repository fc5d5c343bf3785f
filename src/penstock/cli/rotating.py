"""Secrets that rows name by reference: what may stand there, and the command that rotates them."""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeAlias
from uuid import UUID

import click

from penstock.cli.invocation import Invocation, reason_option, yes_option
from penstock.kernel.database import PooledConnection
from penstock.kernel.errors import WrongUsage
from penstock.kernel.references import is_reference

Note: TypeAlias = Callable[[Invocation, Sequence[str]], None]


class Write(Protocol):
    """How a noun rotates: a new secret's reference, or None where the old ones end."""

    async def __call__(
        self, conn: PooledConnection, name: str, reference: str | None, *, reason: str
    ) -> UUID:
        """Write it; returns the audit id."""
        ...


def check_references(references: Iterable[str]) -> None:
    """Refuse a secret that is written down."""
    if not all(map(is_reference, references)):
        raise WrongUsage(
            "a secret is named by env:NAME or file:PATH, never written down",
            todo="put the secret into a variable or a file and name that.",
        )


def rotate_command(
    noun: str, verb: str, write: Write, *, note: Note | None = None
) -> click.Command:
    """The command `rotate` of a noun whose old secrets `verb` (sign, verify) beside the new one."""

    @click.command(
        "rotate", help=f"Put a new secret first; old ones {verb} too, until `rotate --finish`."
    )
    @click.argument("name")
    @click.option("--secret", "reference", help="The new secret: env:NAME or file:PATH.")
    @click.option("--finish", is_flag=True, help="Keep only the newest; the old ones end.")
    @reason_option
    @yes_option
    @click.pass_obj
    def rotate(
        invocation: Invocation,
        *,
        name: str,
        reference: str | None,
        finish: bool,
        reason: str,
        yes: bool,
    ) -> None:
        if (reference is None) != finish:
            raise WrongUsage("give either --secret or --finish")
        new = [] if reference is None else [reference]
        check_references(new)
        out = invocation.out
        plan = "old secrets end" if finish else f"new secret {reference}"
        out.plan([f"{noun} {name}: {plan}"])
        if note is not None:
            note(invocation, new)
        out.confirm(f"Rotate {name}?", yes=yes)

        async def act() -> UUID:
            async with invocation.transaction() as conn:
                return await write(conn, name, reference, reason=reason)

        out.done(f"rotated {name}", audit_id=invocation.run(act()), **{noun: name})

    return rotate
