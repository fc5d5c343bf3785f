"""`penstock pool`: put things on sale, say when and to whom how much, and look."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import click

from penstock.cli.invocation import Invocation, reason_option, yes_option
from penstock.cli.output import Column
from penstock.cli.values import operator_name
from penstock.intake import store
from penstock.intake.model import PoolStats
from penstock.kernel.database import PooledConnection
from penstock.kernel.errors import NotFound, WrongUsage

STOCK_MAX = 10_000_000
CHUNK = 50_000
DEMO_POOL = "demo_concert_2026"
DEMO_SLOTS = 1000
_NUMBERS = ("stocked", "available", "reserved", "consumed", "max_per_user")


class _Time(click.ParamType[datetime]):
    """A time of a schedule: ISO 8601, UTC unless it says otherwise."""

    name = "time"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime:
        """Read it, or fail with what is wanted."""
        if isinstance(value, datetime):
            return value
        try:
            moment = datetime.fromisoformat(str(value))
        except ValueError:
            self.fail(f"{value!r} is no time; write 2026-05-01T12:00Z", param, ctx)
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


TIME = _Time()


@click.group()
def pool() -> None:
    """Pools of intake: stock, schedule, limits."""


@pool.command(name="list")
@click.pass_obj
def list_pools(invocation: Invocation) -> None:
    """Every pool with its counts."""
    rows = [_row(stats) for stats in invocation.run(_pools(invocation))]
    columns = [Column("pool"), Column("sells"), *(Column(name, right=True) for name in _NUMBERS)]
    invocation.out.table(columns, rows, empty="there is no pool")


@pool.command()
@click.argument("name")
@click.pass_obj
def show(invocation: Invocation, *, name: str) -> None:
    """One pool: policy and counts."""
    found = [stats for stats in invocation.run(_pools(invocation)) if stats.pool_id == name]
    if not found:
        raise NotFound(f"there is no pool {name}", todo="`penstock pool list` names them.")
    invocation.out.record(_row(found[0]))


@pool.command()
@click.argument("name")
@click.option("--count", type=click.IntRange(1, STOCK_MAX), help="So many slots, with fresh ids.")
@click.option(
    "--ids",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A file with one id per line, instead of a count.",
)
@reason_option
@yes_option
@click.pass_obj
def stock(
    invocation: Invocation,
    *,
    name: str,
    count: int | None,
    ids: Path | None,
    reason: str,
    yes: bool,
) -> None:
    """Put new slots of a pool on offer; all of them or, if anything fails, none."""
    if (count is None) == (ids is None):
        raise WrongUsage("say either --count or --ids")
    given = None if ids is None else _read_ids(ids)
    total = count if given is None else len(given)
    assert total is not None, "one of the two was given"
    out = invocation.out
    out.plan([f"stock pool {name} with {total:,} new slots; they are on offer at once if it sells"])
    out.confirm(f"Stock {name} with {total:,} slots?", yes=yes)

    async def act() -> int:
        added = 0
        async with invocation.transaction() as conn:
            if given is None:
                return await store.stock_pool(
                    conn, name, count=total, reason=reason, operator=operator_name()
                )
            with out.progress("stocking", total) as progress:
                for start in range(0, total, CHUNK):
                    part = given[start : start + CHUNK]
                    added += await store.stock_pool(
                        conn, name, ids=part, reason=reason, operator=operator_name()
                    )
                    progress.advance(len(part))
        return added

    added = invocation.run(act())
    out.done(f"stocked {name} with {added:,} slots", audit_id=None, pool=name, count=added)


@pool.command(name="open")
@click.argument("name")
@reason_option
@yes_option
@click.pass_obj
def open_(invocation: Invocation, *, name: str, reason: str, yes: bool) -> None:
    """Sell from now on, without an end."""

    async def act(conn: PooledConnection) -> UUID:
        return await store.open_pool(conn, name, reason=reason, operator=operator_name())

    _change(invocation, f"open pool {name}: it sells from now on", act, yes=yes)


@pool.command()
@click.argument("name")
@reason_option
@yes_option
@click.pass_obj
def close(invocation: Invocation, *, name: str, reason: str, yes: bool) -> None:
    """Sell no more; what is reserved is still confirmed."""

    async def act(conn: PooledConnection) -> UUID:
        return await store.close_pool(conn, name, reason=reason, operator=operator_name())

    sentence = f"close pool {name}: it sells no more, what is reserved is still confirmed"
    _change(invocation, sentence, act, yes=yes)


@pool.command()
@click.argument("name")
@click.option("--opens", type=TIME, help="Sell from this time on; else at once.")
@click.option("--closes", type=TIME, help="Sell until this time; else without an end.")
@reason_option
@yes_option
@click.pass_obj
def schedule(
    invocation: Invocation,
    *,
    name: str,
    opens: datetime | None,
    closes: datetime | None,
    reason: str,
    yes: bool,
) -> None:
    """Sell between two times."""
    if opens and closes and closes <= opens:
        raise WrongUsage("--closes is not after --opens")

    async def act(conn: PooledConnection) -> UUID:
        return await store.schedule_pool(
            conn, name, opens_at=opens, closes_at=closes, reason=reason, operator=operator_name()
        )

    begin = f"from {opens:%Y-%m-%d %H:%M %Z}" if opens else "from now on"
    end = f"until {closes:%Y-%m-%d %H:%M %Z}" if closes else "without an end"
    _change(invocation, f"pool {name} sells {begin} {end}", act, yes=yes)


@pool.command()
@click.argument("name")
@click.option("--per-user", type=click.IntRange(1, 1000), help="Most slots one user may hold.")
@click.option("--none", "lifted", is_flag=True, help="Lift the limit.")
@reason_option
@yes_option
@click.pass_obj
def limit(
    invocation: Invocation,
    *,
    name: str,
    per_user: int | None,
    lifted: bool,
    reason: str,
    yes: bool,
) -> None:
    """Say how many slots one user may hold; it counts what is held already."""
    if (per_user is None) != lifted:
        raise WrongUsage("say either --per-user or --none")

    async def act(conn: PooledConnection) -> UUID:
        settings = {"max_per_user": per_user}
        return await store.set_pool(conn, name, settings, reason=reason, operator=operator_name())

    what = "as many slots as there are" if per_user is None else f"at most {per_user}"
    _change(invocation, f"pool {name}: a user may hold {what}", act, yes=yes)


@pool.command(name="seed-demo")
@click.option("--name", default=DEMO_POOL, show_default=True)
@click.option("--count", type=click.IntRange(1, STOCK_MAX), default=DEMO_SLOTS, show_default=True)
@yes_option
@click.pass_obj
def seed_demo(invocation: Invocation, *, name: str, count: int, yes: bool) -> None:
    """The demonstration pool with its config row; run again it adds nothing."""
    out = invocation.out
    out.plan([f"make pool {name} with {count:,} slots, unless it has them"])
    out.confirm(f"Seed {name}?", yes=yes)

    async def act() -> int:
        async with invocation.transaction() as conn:
            return await store.seed_demo(conn, name, count)

    added = invocation.run(act())
    out.done(f"pool {name}: {added:,} slots added", audit_id=None, pool=name, count=added)


def _change(
    invocation: Invocation,
    sentence: str,
    act: Callable[[PooledConnection], Awaitable[UUID]],
    *,
    yes: bool,
) -> None:
    out = invocation.out
    out.plan([sentence])
    out.confirm("Do it?", yes=yes)

    async def run() -> UUID:
        async with invocation.transaction() as conn:
            return await act(conn)

    out.done(sentence, audit_id=invocation.run(run()))


async def _pools(invocation: Invocation) -> list[PoolStats]:
    async with invocation.connection() as conn:
        return await store.pools(conn)


def _row(stats: PoolStats) -> dict[str, object]:
    return {
        "pool": stats.pool_id,
        "sells": stats.is_active,
        "opens_at": stats.opens_at,
        "closes_at": stats.closes_at,
        "hold_s": stats.hold_s,
        **{name: getattr(stats, name) for name in _NUMBERS},
    }


def _read_ids(path: Path) -> list[UUID]:
    ids: list[UUID] = []
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        text = line.strip()
        if not text:
            continue
        try:
            ids.append(UUID(text))
        except ValueError:
            raise WrongUsage(f"line {number} of {path} is no id") from None
    if not ids or len(set(ids)) != len(ids):
        raise WrongUsage(f"{path} holds no ids, or one of them twice")
    return ids
