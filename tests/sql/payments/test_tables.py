"""Shape and protection of the tables: names of the contract, append-only, partitions, wake-up."""

from datetime import timedelta
from uuid import uuid4

import asyncpg
import pytest
from tests.support.payments import CLAIM, PAYLOAD, Connection, Session, SqlPayments
from tests.support.waiting import until_true

COLUMNS = """
select column_name || ' ' || udt_name || case is_nullable when 'NO' then ' not null' else '' end
from information_schema.columns
where table_schema = 'public' and table_name = $1 order by ordinal_position limit $2
"""
BUSINESS = [
    "instruction_id text not null",
    "participant_id text not null",
    "sequence_id int8 not null",
    "idempotency_key text not null",
    "rail_type text not null",
    "payload jsonb not null",
]
PENDING = [
    "outbox_id uuid not null",
    *BUSINESS,
    "attempt_count int4 not null",
    "next_attempt_at timestamptz not null",
    "created_at timestamptz not null",
]
ATTEMPTS = [
    "attempt_id uuid not null",
    "outbox_id uuid not null",
    *BUSINESS,
    "attempt_no int4 not null",
    "state outbox_attempt_state not null",
    "claimed_at timestamptz not null",
    "completed_at timestamptz",
    "rail_reference text",
    "rail_code text",
    "error_code text",
    "error_message text",
    "latency_ms int4",
    "created_at timestamptz not null",
]
TABLES = [
    "participant_outbox_sequences",
    "payment_outbox_registry",
    "payment_outbox_pending",
    "payment_outbox_inflight",
    "payment_outbox_attempts",
    "payment_outbox_attempts_default",
    "payment_chain",
]


async def _state(conn: Session, query: str, *args: object) -> str | None:
    """The SQLSTATE with which a statement fails; nothing when it does not."""
    try:
        async with conn.transaction():
            await conn.execute(query, *args)
    except asyncpg.PostgresError as error:
        return error.sqlstate
    return None


async def test_the_names_of_the_contract(conn: Connection) -> None:
    states = await conn.fetchval("select enum_range(null::outbox_attempt_state)::text[]")
    assert states == ["DISPATCHING", "DISPATCHED", "RETRYABLE", "FAILED", "ZOMBIE_REQUEUE"]
    for table, expected in (
        ("payment_outbox_pending", PENDING),
        ("payment_outbox_attempts", ATTEMPTS),
        (
            "participant_outbox_sequences",
            ["participant_id text not null", "next_sequence_id int8 not null"],
        ),
    ):
        rows = await conn.fetch(COLUMNS, table, len(expected))
        assert [row[0] for row in rows] == expected
    uniques = await conn.fetch(
        """select conrelid::regclass || ' ' || pg_get_constraintdef(oid) from pg_constraint
           where conrelid in ('payment_outbox_pending'::regclass,
                              'payment_outbox_attempts'::regclass) and contype in ('p', 'u')"""
    )
    assert {row[0] for row in uniques} == {
        "payment_outbox_pending PRIMARY KEY (outbox_id)",
        "payment_outbox_pending UNIQUE (participant_id, sequence_id)",
        "payment_outbox_pending UNIQUE (instruction_id, idempotency_key)",
        "payment_outbox_attempts PRIMARY KEY (attempt_id, outbox_id)",
        "payment_outbox_attempts UNIQUE (outbox_id, attempt_no)",
    }
    for index in ("ix_pending_due", "ix_attempts_by_outbox", "ix_attempts_dispatching_age"):
        assert await conn.fetchval("select to_regclass($1)", index) is not None
    for legacy in ("payment_outbox", "outbox_status"):
        assert await conn.fetchval("select to_regclass($1)", legacy) is None


async def test_functions_of_the_contract_are_owned_and_fixed(conn: Connection) -> None:
    rows = await conn.fetch(
        """select proname::text, prosecdef, proconfig::text[], pg_get_userbyid(proowner)::text
           from pg_proc where proname in ('bump_participant_outbox_seq', 'enqueue_payment_outbox',
                                          'notify_outbox_pending') order by 1"""
    )
    assert [(row[0], row[1], row[3]) for row in rows] == [
        ("bump_participant_outbox_seq", True, "penstock_owner"),
        ("enqueue_payment_outbox", True, "penstock_owner"),
        ("notify_outbox_pending", False, "penstock_owner"),
    ]
    assert all("search_path=pg_catalog, pg_temp" in row[2] for row in rows)


async def test_parameters_have_the_names_of_the_contract(conn: Connection) -> None:
    row = await conn.fetchrow(
        """select * from enqueue_payment_outbox(payload => $1, rail_type => 'ach',
               idempotency_key => 'k', participant_id => 'p', instruction_id => 'i')""",
        PAYLOAD,
    )
    assert row is not None
    assert (row["sequence_id"], row["state"]) == (1, "PENDING")
    assert await conn.fetchval("select bump_participant_outbox_seq(participant_id => 'p')") == 2


async def test_the_counter_gives_each_number_once(conn: Connection) -> None:
    bump = "select bump_participant_outbox_seq($1)"
    assert [await conn.fetchval(bump, "p") for _ in range(3)] == [1, 2, 3]
    assert await conn.fetchval(bump, "q") == 1
    assert await conn.fetchval("select bump_participant_outbox_seq('p', 5)") == 4
    assert await conn.fetchval(bump, "p") == 9


async def test_the_archive_is_append_only_for_everybody(payments: SqlPayments) -> None:
    conn = payments.conn
    await payments.enqueue()
    await payments.finish(await payments.claim())
    update = "update payment_outbox_attempts set rail_reference = 'x'"
    for setting in ("origin", "replica"):
        await conn.execute(f"set session_replication_role = {setting}")
        assert await _state(conn, update) == "P0001"
        assert await _state(conn, "delete from payment_outbox_attempts") == "P0001"
        assert await _state(conn, "delete from payment_outbox_registry") == "P0001"
        changed = "update payment_outbox_registry set payload_sha256 = sha256('x')"
        assert await _state(conn, changed) == "PN504"
    await conn.execute("set session_replication_role = origin")


async def test_nobody_truncates(payments: SqlPayments) -> None:
    conn = payments.conn
    partitions = await conn.fetch(
        """select inhrelid::regclass::text from pg_inherits
           where inhparent = 'payment_outbox_attempts'::regclass"""
    )
    assert len(partitions) == 5
    for setting in ("origin", "replica"):
        await conn.execute(f"set session_replication_role = {setting}")
        for table in {*TABLES, *(row[0] for row in partitions)}:
            assert await _state(conn, f"truncate {table} cascade") == "P0001", table
    await conn.execute("set session_replication_role = origin")
    await conn.execute("set role penstock_owner")
    for table in TABLES:
        assert await _state(conn, f"truncate {table} cascade") == "P0001", table
    await conn.execute("reset role")


async def test_an_attempt_number_is_used_once(payments: SqlPayments) -> None:
    await payments.enqueue()
    await payments.claim()
    again = """insert into payment_outbox_attempts (outbox_id, instruction_id, participant_id,
                   sequence_id, idempotency_key, rail_type, payload, attempt_no, state)
               select outbox_id, instruction_id, participant_id, sequence_id, idempotency_key,
                      rail_type, payload, attempt_no, 'DISPATCHED' from payment_outbox_attempts"""
    assert await _state(payments.conn, again) == "23505"


async def test_what_a_payment_says_never_changes(payments: SqlPayments) -> None:
    await payments.enqueue()
    for change in (
        "payload = jsonb_set(payload, '{amount}', '\"99999\"')",
        "payload = jsonb_set(payload, '{destination}', '\"mine\"')",
        "participant_id = 'mallory'",
        "sequence_id = 7",
        "instruction_id = 'x'",
        "idempotency_key = 'x'",
        "rail_type = 'x'",
        "outbox_id = gen_random_uuid()",
        "created_at = created_at - interval '1 day'",
        "attempt_count = -1",
        "first_sent_at = now()",
    ):
        query = "update payment_outbox_pending set " + change
        assert await _state(payments.conn, query) == "PN504", change
    ok = "update payment_outbox_pending set next_attempt_at = now() + interval '1 h'"
    assert await _state(payments.conn, ok) is None


INSERT = """
insert into payment_outbox_pending (outbox_id, instruction_id, participant_id, sequence_id,
    idempotency_key, rail_type, payload)
select r.outbox_id, r.instruction_id, r.participant_id, r.sequence_id, r.idempotency_key,
       r.rail_type, $1::text::jsonb
from payment_outbox_registry r
"""


async def test_a_row_must_be_an_open_payment_of_the_registry(payments: SqlPayments) -> None:
    conn = payments.conn
    await payments.enqueue()
    flights = await payments.claim()
    assert await _state(conn, INSERT, PAYLOAD) == "PN504", "in flight"
    await payments.finish(flights)
    assert await _state(conn, INSERT, PAYLOAD) == "PN504", "ended"
    foreign = """insert into payment_outbox_pending (instruction_id, participant_id, sequence_id,
                     idempotency_key, rail_type, payload) values ('x', 'p1', 2, 'x', 'ach', $1)"""
    assert await _state(conn, foreign, PAYLOAD) == "PN504", "never enqueued"


async def test_a_row_put_back_by_hand_must_be_the_same_payment(conn: Connection) -> None:
    payments = SqlPayments(conn)
    await payments.enqueue()
    await conn.execute("delete from payment_outbox_pending")
    assert [row[0] for row in await payments.violations()] == ["M6"]
    assert await _state(conn, INSERT, PAYLOAD.replace("10.50", "10.51")) == "PN504"
    assert await _state(conn, INSERT, PAYLOAD) is None
    assert await payments.violations() == []


async def test_partitions_reach_three_months_ahead(payments: SqlPayments) -> None:
    conn = payments.conn
    assert await conn.fetchval("select payment_partitions()") == 0
    await payments.advance(timedelta(days=35))
    assert await conn.fetchval("select payment_partitions()") in (1, 2)
    await payments.enqueue()
    await payments.claim()
    homes = await conn.fetch("select tableoid::regclass::text from payment_outbox_attempts")
    assert all(row[0] != "payment_outbox_attempts_default" for row in homes)
    ahead = await conn.fetchval(
        """select max(relname) from pg_class
           where relname ~ '^payment_outbox_attempts_[0-9]{6}$'"""
    )
    assert await _state(conn, f"truncate {ahead}") == "P0001"


async def test_an_id_of_no_month_goes_to_the_default_partition(conn: Connection) -> None:
    await conn.execute(
        """insert into payment_outbox_attempts (outbox_id, instruction_id, participant_id,
               sequence_id, idempotency_key, rail_type, payload, attempt_no, state)
           values ($1, 'i', 'p', 1, 'k', 'ach', '{}', 1, 'DISPATCHING')""",
        uuid4(),
    )
    home = await conn.fetchval("select tableoid::regclass::text from payment_outbox_attempts")
    assert home == "payment_outbox_attempts_default"


class _Listener:
    def __init__(self, url: str) -> None:
        self.url = url
        self.heard: list[str] = []

    async def __aenter__(self) -> "_Listener":
        self.conn = await asyncpg.connect(self.url)
        await self.conn.add_listener("outbox_pending", lambda *got: self.heard.append(got[3]))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.conn.close()

    async def hears(self) -> list[str]:
        """What arrived before a mark that is sent now."""
        await self.conn.execute("notify outbox_pending, 'mark'")
        await until_true(lambda: "mark" in self.heard, "the mark arrives")
        heard, self.heard = self.heard[: self.heard.index("mark")], []
        return heard


async def test_a_due_payment_rings_and_a_waiting_one_does_not(
    database_url: str, payments: SqlPayments
) -> None:
    async with _Listener(database_url) as listener:
        await payments.fill(3, 3)
        assert await listener.hears() == ["new_work"], "once per statement"
        flights = await payments.claim()
        assert await listener.hears() == []
        await payments.finish(flights[:1], "RETRYABLE", delay_s=60)
        assert await listener.hears() == []
        await payments.finish(flights[1:2], "RETRYABLE", delay_s=0)
        assert await listener.hears() == ["new_work"]
        await payments.finish(flights[2:])
        assert await listener.hears() == []


async def test_without_the_bell_polling_finds_everything(
    database_url: str, payments: SqlPayments
) -> None:
    await payments.config(notify=False)
    async with _Listener(database_url) as listener:
        await payments.enqueue()
        assert await listener.hears() == []
    assert await payments.conn.fetchval("select payment_ready()")
    assert len(await payments.conn.fetch(CLAIM)) == 1
    assert not await payments.conn.fetchval("select payment_ready()")


async def test_numbers_for_people_come_from_the_hot_tables(payments: SqlPayments) -> None:
    await payments.fail("a")
    await payments.hold("b")
    await payments.enqueue("c")
    (flight,) = await payments.claim()
    await payments.finish([flight], "RETRYABLE", delay_s=60)
    await payments.enqueue("d")
    await payments.claim()
    await payments.enqueue("e")
    row = await payments.conn.fetchrow(
        "select * from penstock.queue_stats where queue = 'payments'"
    )
    assert row is not None
    names = ("ready", "scheduled", "leased", "expired", "dead", "held")
    assert [row[name] for name in names] == [1, 1, 1, 0, 1, 1]
    await payments.advance(timedelta(seconds=70))
    row = await payments.conn.fetchrow(
        "select expired, oldest_age_s from penstock.queue_stats where queue = 'payments'"
    )
    assert row is not None
    assert row["expired"] == 1
    assert row["oldest_age_s"] > 69


async def test_a_setting_that_is_spelt_wrongly_is_refused(payments: SqlPayments) -> None:
    for query in (
        """select put_payment_policy('{"second_aprover": true}', 'r')""",
        """select put_payment_policy('{"one": false}', 'r')""",
        """select put_payment_policy('[]', 'r')""",
        """select put_payment_rail('ach', '{"idempotency_windw": "1 day"}', 'r')""",
        """select put_payment_rail('ach', null, 'r')""",
    ):
        assert await _state(payments.conn, query) == "PN005", query
    assert await payments.conn.fetch("select * from payment_rails") == []


async def test_rail_and_policy_changes_are_audited(payments: SqlPayments) -> None:
    await payments.rail("ach", idempotent=True, idempotency_window="1 day", codes={"51": "RETRY"})
    await payments.policy(second_approver=True)
    rows = await payments.conn.fetch("select table_name from audit.audit_logs order by at")
    assert [row[0] for row in rows] == ["public.payment_rails", "penstock_payments.policy"]
    codes = await payments.conn.fetch("select code, class from payment_rail_codes")
    assert [tuple(row) for row in codes] == [("51", "RETRY")]
    with pytest.raises(asyncpg.PostgresError) as refused:
        await payments.rail("ach", idempotent=True, idempotency_window=None)
    assert refused.value.sqlstate == "23514", "a rail with keys says for how long"
