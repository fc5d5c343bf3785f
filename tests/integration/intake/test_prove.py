"""`prove` finds what is planted, names it, and does not cry wolf while a sale goes on."""

import asyncio
from collections.abc import Iterator, Sequence

import asyncpg
import psycopg
import pytest
from tests.support.bridge import Sale
from tests.support.cli import Cli, make_cli
from tests.support.intake import Connection

from penstock.intake.bridge import Bridge
from penstock.intake.prove import INVARIANTS, IntakeProof, Prover
from penstock.kernel.proof import Violation, confirmed
from penstock.ledger import store as ledger_store
from penstock.outbox.prove import prove as prove_outbox

USERS = [f"user-{number}" for number in range(6)]

# What is planted, where, and the invariants that must be named.
PLANTED: dict[str, tuple[str, str, set[str]]] = {
    "oversold: two users for one seat": (
        "ledger",
        "update confirmed_tickets set user_id = 'mallory'"
        " where resource_id = (select min(resource_id::text)::uuid from confirmed_tickets)",
        {"I1", "I2"},
    ),
    "oversold: the ticket is another reservation's": (
        "ledger",
        "update confirmed_tickets set reservation_id = gen_random_uuid()"
        " where resource_id = (select min(resource_id::text)::uuid from confirmed_tickets)",
        {"I1", "I2", "I7"},
    ),
    "lost: sold without a ticket": (
        "ledger",
        "delete from confirmed_tickets"
        " where resource_id = (select min(resource_id::text)::uuid from confirmed_tickets)",
        {"I2", "I7"},
    ),
    "a ticket for nothing": (
        "ledger",
        "insert into confirmed_tickets (resource_id, pool_id, user_id)"
        " values (gen_random_uuid(), 'demo', 'mallory')",
        {"I3"},
    ),
    "a seat that vanished": (
        "engine",
        "update penstock_intake.pool_stock set stocked = stocked + 1",
        {"I4"},
    ),
    "orphan: reserved, and no message speaks for it": (
        "engine",
        "delete from pgmq.q_intake_queue",
        {"I5"},
    ),
    "two messages for one reservation": (
        "engine",
        "select pgmq.send('intake_queue', message) from pgmq.q_intake_queue limit 1",
        {"I5"},
    ),
    "double: one request id, two seats": (
        "engine",
        "drop index inventory_slots_request;"
        " update inventory_slots set locked_by = 'user-0', request_id = 'twice', user_nth = null"
        " where status = 'CONSUMED'",
        {"I1", "I2", "I6"},
    ),
    "confirmed and cancelled": (
        "ledger",
        "update reservation_outcomes set outcome = 'CANCELLED'",
        {"I7"},
    ),
    "a free seat where no claim looks": (
        "engine",
        "select setval((select watermark from penstock_intake.pool_mark), 1000000)",
        {"I8"},
    ),
    "a retired seat on offer": (
        "engine",
        "insert into penstock_intake.retired_slots (id, pool_id, replaced_by, locked_by,"
        " reservation_id, commit_started_at, reason)"
        " select id, pool_id, id, 'x', gen_random_uuid(), now(), 'test' from inventory_slots"
        " where status = 'AVAILABLE' limit 1",
        {"I9"},
    ),
}


@pytest.fixture
async def sold(sale: Sale, bridge: Bridge) -> Sale:
    """Two free seats, two reserved, two sold."""
    await sale.open(6)
    await sale.sell(*USERS[:2])
    await bridge.run_once()
    await sale.sell(*USERS[2:4])
    return sale


async def look(sale: Sale, *, page: int = 1) -> IntakeProof:
    """Prove with the smallest pages, so that paging is proved too."""
    return await Prover(sale.engine.conn, sale.ledger, ledger_store, page=page).prove(pause_s=0.0)


async def test_an_honest_sale_holds_and_adds_up(sold: Sale) -> None:
    found = await look(sold)
    assert list(found.proof.violations) == []
    assert found.proof.invariants == INVARIANTS
    assert [one.text for one in found.equations] == [
        "6 slots = 2 free + 2 reserved + 2 sold      engine 2 = ledger 2"
    ]


@pytest.mark.parametrize("name", PLANTED)
async def test_what_is_planted_is_found(sold: Sale, name: str) -> None:
    place, statement, expected = PLANTED[name]
    conn: Connection = sold.ledger if place == "ledger" else sold.engine.conn
    await conn.execute(statement)
    found = await look(sold)
    assert {one.invariant for one in found.proof.violations} == expected
    assert not found.proof.holds


async def test_without_a_ledger_it_says_what_it_did_not_see(sold: Sale) -> None:
    found = await Prover(sold.engine.conn, None, ledger_store).prove()
    assert set(found.proof.unseen) == {"I1", "I2", "I3", "I7"}
    assert set(found.proof.invariants) | set(found.proof.unseen) == set(INVARIANTS)
    assert found.equations[0].tickets is None


async def test_a_live_sale_is_not_accused(sale: Sale, bridge: Bridge, database_url: str) -> None:
    await sale.open(400)
    done = asyncio.Event()

    async def sell() -> None:
        for number in range(40):
            await sale.sell(*(f"buyer-{number}-{nth}" for nth in range(10)))
            await bridge.run_once()
        done.set()

    selling = asyncio.create_task(sell())
    looks = 0
    engine = await asyncpg.connect(database_url)
    try:
        while not done.is_set():
            found = await Prover(engine, None, ledger_store).prove(pause_s=0.2)
            assert list(found.proof.violations) == []
            looks += 1
        await selling
    finally:
        await engine.close()
    assert looks > 0
    assert (await look(sale, page=50)).proof.holds


async def test_only_what_a_second_look_finds_again_is_said() -> None:
    passing = Violation("I5", "slot 1", "reserved, with 0 messages")
    staying = Violation("I5", "slot 2", "reserved, with 0 messages")
    reworded = Violation("I5", "slot 2", "reserved, with 2 messages")
    fresh = Violation("I4", "pool x", "seen only the second time")
    looks: Iterator[Sequence[Violation]] = iter([[passing, staying], [reworded, fresh]])

    async def next_look() -> Sequence[Violation]:
        return next(looks)

    assert await confirmed(next_look, pause_s=0.0) == [reworded]


async def test_nothing_found_needs_no_second_look() -> None:
    looks = 0

    async def count() -> Sequence[Violation]:
        nonlocal looks
        looks += 1
        return []

    assert await confirmed(count) == []
    assert looks == 1


# the outbox


async def published(conn: Connection) -> None:
    await conn.execute("select app.outbox_publish(null, 'a', '{}') from generate_series(1, 4)")
    token = "00000000-0000-7000-8000-000000000001"
    rows = await conn.fetch("select seq, id from app.outbox_claim(3, $1)", token)
    seqs, ids = [row["seq"] for row in rows], [row["id"] for row in rows]
    await conn.execute("select app.outbox_finish($1, $2, $3)", seqs[:1], ids[:1], [token])
    await conn.execute("select app.outbox_release($1, $2)", seqs[1:2], [token])


async def test_an_honest_outbox_holds(conn: Connection) -> None:
    await published(conn)
    assert list((await prove_outbox(conn, pause_s=0.0)).violations) == []


@pytest.mark.parametrize(
    ("statement", "invariant"),
    [
        ("update outbox set lease_epoch = lease_epoch + 1 where pos is null", "K5"),
        (
            "insert into outbox_attempts (seq, event_id, lease_token, lease_epoch, outcome)"
            " select seq, id, id, 9, 'RETRY' from outbox",
            "K5",
        ),
        ("update outbox_archive set lease_epoch = 0", "K5"),
        ("insert into outbox_archive select * from outbox_archive", "K6"),
        (
            "alter table outbox drop constraint outbox_one_state;"
            " update outbox set held_at = now() where pos is not null",
            "K6",
        ),
    ],
)
async def test_what_is_planted_in_the_outbox_is_found(
    conn: Connection, statement: str, invariant: str
) -> None:
    await published(conn)
    await conn.execute(statement)
    found = await prove_outbox(conn, pause_s=0.0)
    assert invariant in {one.invariant for one in found.violations}


# the command


@pytest.fixture
def command(
    capsys: pytest.CaptureFixture[str],
    database_url: str,
    ledger_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> Cli:
    for name in ("PENSTOCK_DATABASE_URL", "DATABASE_URL", "DB_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PENSTOCK_LEDGER_URL", ledger_url)
    return make_cli(capsys, "--database", database_url)


def plant(database_url: str, statement: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as conn:
        conn.execute(statement)


def test_the_command_says_that_all_holds(command: Cli, database_url: str) -> None:
    plant(database_url, "select intake_pool_stock('demo', 3, 'test')")
    ran = command("prove")
    assert ran.code == 0
    assert "demo: 3 slots = 3 free + 0 reserved + 0 sold      engine 0 = ledger 0" in ran.out
    assert all(f"✓ {number}" in ran.out for number in (*INVARIANTS, "K5", "K6"))


def test_the_command_names_the_offender_and_fails(command: Cli, database_url: str) -> None:
    plant(database_url, "select intake_pool_stock('demo', 3, 'test')")
    plant(database_url, "update penstock_intake.pool_stock set stocked = 7")
    ran = command("prove", "--only", "intake", "--quiet")
    assert ran.code == 1
    assert "✗ I4" in ran.out
    assert "pool demo: given 7 slots, has 3" in ran.out
    assert "✓" not in ran.out


def test_the_command_as_a_document(command: Cli, database_url: str) -> None:
    plant(database_url, "select intake_pool_stock('demo', 3, 'test')")
    plant(database_url, "update penstock_intake.pool_stock set stocked = 7")
    document = command("prove", "--json").document
    assert document["proof"] == "failed"
    assert document["invariants"]["I4"] is False
    assert document["invariants"]["K5"] is True
    assert document["violations"] == [
        {"invariant": "I4", "subject": "pool demo", "detail": "given 7 slots, has 3"}
    ]


def test_the_command_refuses_what_it_does_not_know(command: Cli) -> None:
    assert command("prove", "--only", "nonsense").code == 2


def test_an_empty_database_has_nothing_to_prove(
    capsys: pytest.CaptureFixture[str], empty_url: str
) -> None:
    assert make_cli(capsys, "--database", empty_url)("prove").code == 4
