"""Who may do what with payments, tried by logins of each role: every forbidden act has its code."""

from collections.abc import AsyncIterator, Callable
from typing import TypeAlias
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest
from tests.support.payments import CLAIM, ENQUEUE, PAYLOAD, Connection, SqlPayments

Login: TypeAlias = Callable[[str], "asyncpg.Connection[asyncpg.Record]"]
GROUPS = {
    "ingest": "penstock_payments_ingest",
    "executor": "penstock_payments_executor",
    "operator": "penstock_operator",
    "control": "penstock_control",
    "readonly": "penstock_readonly",
    "auditor": "penstock_auditor",
}
DENIED = "42501"
TABLES = {
    "payment_outbox_pending": "next_attempt_at",
    "payment_outbox_attempts": "rail_reference",
    "payment_outbox_registry": "terminal_state",
    "payment_outbox_inflight": "lease_expires_at",
    "participant_outbox_sequences": "next_sequence_id",
    "payment_chain": "hash",
    "payment_rails": "idempotent",
    "payment_rail_codes": "class",
    "penstock_payments.policy": "second_approver",
    "penstock_payments.approvals": "approved_by",
    "penstock_payments.currencies": "minor_units",
    "penstock_payments.dead_letters": "blocks",
}
ENQUEUE_LITERAL = f"select enqueue_payment_outbox('new', 'p', 'k', 'ach', '{PAYLOAD}')"
FORGED = (
    "insert into payment_outbox_pending (instruction_id, participant_id, sequence_id,"
    f" idempotency_key, rail_type, payload) values ('x', 'p9', 1, 'k', 'ach', '{PAYLOAD}')"
)
OPERATE = (
    "select hold_payment(gen_random_uuid(), 'r')",
    "select resolve_payment(gen_random_uuid(), 'not_paid', 'r')",
    "select replay_payment(gen_random_uuid(), 'me', 'r')",
    "select * from payment_replay(array[gen_random_uuid()], 'r')",
    "select * from payment_discard(array[gen_random_uuid()], 'r')",
    "select cancel_payment(gen_random_uuid(), 'r')",
    "select approve_payment(gen_random_uuid(), 'r')",
)
WORK = (
    "select * from claim_payment_outbox(1)",
    "select * from mark_payment_sent('{}', '{}')",
    "select * from finish_payment_attempts('{}', '{}', '{}')",
    "select release_payment_outbox('{}', '{}')",
    "select record_late_success(gen_random_uuid(), gen_random_uuid())",
    "select extend_payment_chain()",
    "select * from extend_payment_leases('{}', '{}')",
    "select * from finish_and_claim_payments('{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}',"
    " '{}', null)",
    "select resolve_payment_by_status(gen_random_uuid(), 'dispatched')",
    "select * from payment_held()",
    "select payment_ready()",
    "select payment_partitions()",
)
SET_POLICY = ("select put_payment_rail('x', '{}', 'r')", "select put_payment_policy('{}', 'r')")
BUMP = "select bump_participant_outbox_seq('p')"
WRITES = tuple(
    statement
    for table, column in TABLES.items()
    for statement in (
        f"delete from {table}",
        f"truncate {table}",
        f"insert into {table} default values",
        f"update {table} set {column} = {column}",
    )
)
READS = tuple(f"select 1 from {table}" for table in TABLES)
FORBIDDEN: dict[str, tuple[str, ...]] = {
    "ingest": (*OPERATE, *WORK, *SET_POLICY, BUMP, FORGED, *WRITES, *READS),
    "executor": (
        *OPERATE,
        *SET_POLICY,
        BUMP,
        ENQUEUE_LITERAL,
        "update payment_outbox_attempts set rail_reference = 'x'",
        "delete from payment_outbox_attempts",
        "truncate payment_outbox_attempts",
        "truncate payment_outbox_pending",
        "delete from payment_outbox_inflight",
        "update payment_outbox_registry set terminal_state = null",
        "select 1 from payment_outbox_registry",
        "select 1 from participant_outbox_sequences",
        "update payment_rails set idempotent = true",
        "insert into payment_outbox_attempts_default default values",
    ),
    "operator": (
        *WORK,
        *SET_POLICY,
        BUMP,
        ENQUEUE_LITERAL,
        FORGED,
        *WRITES,
        "select payload from payment_outbox_attempts",
        "select 1 from participant_outbox_sequences",
        "select payment_story(gen_random_uuid(), true)",
    ),
    "control": (*OPERATE, *WORK, BUMP, ENQUEUE_LITERAL, FORGED, *WRITES),
    "readonly": (
        *OPERATE,
        *WORK,
        *SET_POLICY,
        BUMP,
        ENQUEUE_LITERAL,
        FORGED,
        *WRITES,
        "select next_sequence_id from participant_outbox_sequences",
        "select payload from payment_outbox_pending",
        "select lease_token from payment_outbox_inflight",
        "select payment_story(gen_random_uuid())",
    ),
    "auditor": (
        *OPERATE,
        *WORK,
        *SET_POLICY,
        BUMP,
        ENQUEUE_LITERAL,
        FORGED,
        *WRITES,
        "select next_sequence_id from participant_outbox_sequences",
        "select payload from payment_outbox_attempts",
    ),
}
ALLOWED: dict[str, tuple[str, ...]] = {
    "ingest": (ENQUEUE_LITERAL,),
    "executor": (
        *(one for one in WORK if "late" not in one),
        "select * from payment_outbox_pending",
        "select * from payment_outbox_attempts",
        "select * from reap_payment_outbox()",
        "delete from payment_outbox_pending where false",
    ),
    "operator": (
        "select * from supervisor_outbox_status",
        "select * from payment_prove()",
        "select * from verify_payment_chain()",
    ),
    "control": (
        "select * from payment_outbox_pending",
        "select * from payment_outbox_attempts",
        "select * from participant_outbox_sequences",
        *SET_POLICY,
    ),
    "readonly": ("select * from supervisor_outbox_status",),
    "auditor": (
        "select * from supervisor_outbox_status",
        "select * from payment_outbox_registry",
        "select * from verify_payment_chain()",
    ),
}


@pytest.fixture
async def logins(
    conn: Connection, database_url: str
) -> AsyncIterator[dict[str, "asyncpg.Connection[asyncpg.Record]"]]:
    """A connection per role, each by a login that has nothing else."""
    database = urlsplit(database_url).path.removeprefix("/")
    address = urlsplit(database_url).netloc.rpartition("@")[2]
    made: dict[str, asyncpg.Connection[asyncpg.Record]] = {}
    names = {role: f"login_{role}_{database}" for role in GROUPS}
    for role, name in names.items():
        await conn.execute(f"create role {name} login in role {GROUPS[role]}")
        url = urlunsplit(urlsplit(database_url)._replace(netloc=f"{name}@{address}"))
        made[role] = await asyncpg.connect(url)
    yield made
    for role, name in names.items():
        await made[role].close()
        await conn.execute(f"drop role {name}")


async def _state(conn: Connection, query: str) -> str | None:
    transaction = conn.transaction()
    await transaction.start()
    try:
        await conn.execute(query)
    except asyncpg.PostgresError as error:
        return error.sqlstate
    finally:
        await transaction.rollback()
    return None


async def test_each_role_can_do_its_work_and_no_more(
    conn: Connection, logins: dict[str, Connection]
) -> None:
    payments = SqlPayments(conn)
    for participant in ("a", "b"):
        await payments.enqueue(participant)
    await payments.finish((await payments.claim(1)), "FAILED")
    wrong = {}
    for role, session in logins.items():
        for query in FORBIDDEN[role]:
            if (state := await _state(session, query)) != DENIED:
                wrong[role, query] = state
        for query in ALLOWED[role]:
            if (state := await _state(session, query)) is not None:
                wrong[role, query] = state
    assert wrong == {}
    assert await payments.violations() == []


async def test_a_whole_payment_by_the_roles_alone(
    conn: Connection, logins: dict[str, Connection]
) -> None:
    payments = SqlPayments(conn)
    payment = (await logins["ingest"].fetch(ENQUEUE, "i", "p", "k", "ach", PAYLOAD))[0][0]
    worker = SqlPayments(logins["executor"])
    flights = await worker.claim()
    assert await worker.send(flights) == {payment}
    assert await worker.finish(flights) == ["DISPATCHED"]
    told = await logins["auditor"].fetchval("select penstock.story($1) ->> 'state'", payment)
    assert told == "DISPATCHED"
    status = await logins["auditor"].fetchval("select state from supervisor_outbox_status")
    assert status == "DISPATCHED"
    assert await payments.violations() == []


async def test_an_executor_cannot_invent_or_change_money(
    conn: Connection, logins: dict[str, Connection]
) -> None:
    payments = SqlPayments(conn)
    await payments.enqueue("a")
    executor = logins["executor"]
    stolen = 'update payment_outbox_pending set payload = payload || \'{"destination": "me"}\''
    assert await _state(executor, stolen) == "PN504"
    assert await _state(executor, FORGED) == "PN504"
    assert (
        await _state(executor, "update payment_outbox_pending set next_attempt_at = now()") is None
    )
    assert await _state(executor, CLAIM) is None


async def test_counters_stay_closed_after_a_blanket_grant(
    conn: Connection, logins: dict[str, Connection]
) -> None:
    await SqlPayments(conn).enqueue("a")
    async with conn.transaction():
        await conn.execute(
            "grant select on all tables in schema public to penstock_readonly, penstock_auditor"
        )
        await conn.execute(
            "revoke all on participant_outbox_sequences from penstock_readonly, penstock_auditor"
        )
    counters = "select count(*) from participant_outbox_sequences"
    for role in ("readonly", "auditor"):
        assert await _state(logins[role], counters) == DENIED
    await conn.execute("grant select on participant_outbox_sequences to penstock_readonly")
    assert await logins["readonly"].fetchval(counters) == 0, "row security shows nothing"
    assert await logins["control"].fetchval(counters) == 1
