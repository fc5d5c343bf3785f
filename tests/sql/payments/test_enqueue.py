"""enqueue_payment_outbox: idempotent at every isolation level, gap-free, validated, never null."""

import asyncio
import json
from typing import Any

import asyncpg
import pytest
from tests.support.interleave import Stage
from tests.support.payments import ENQUEUE, PAYLOAD, Session, SqlPayments

from penstock.payments.instruction import MINOR_UNITS

BATCH = "select * from enqueue_payment_outbox_batch($1, $2, $3, $4, $5::text[]::jsonb[])"
GIVEN = ("i", "p", "k", "ach", PAYLOAD)
OTHER = PAYLOAD.replace("10.50", "10.51")

REFUSED: list[dict[str, object]] = [
    {"amount": "0"},
    {"amount": "0.00"},
    {"amount": "-1"},
    {"amount": "10.005"},
    {"amount": "1e3"},
    {"amount": "1e400"},
    {"amount": "NaN"},
    {"amount": "Infinity"},
    {"amount": " 1"},
    {"amount": "\uff11"},
    {"amount": "1."},
    {"amount": ""},
    {"amount": "1" * 16},
    {"amount": 0},
    {"amount": -5},
    {"amount": 10.5},
    {"amount": 10**30},
    {"amount": None},
    {"amount": True},
    {"amount": ["1"]},
    {"currency": "usd"},
    {"currency": "XXX"},
    {"currency": "XAU"},
    {"currency": "EURO"},
    {"currency": None},
    {"currency": "JPY", "amount": "1.5"},
    {"currency": "KWD", "amount": "1.0001"},
    {"destination": ""},
    {"destination": "  "},
    {"destination": "\t\n"},
    {"destination": "\u00a0"},
    {"destination": {}},
    {"destination": {"iban": ""}},
    {"destination": {"iban": None, "name": " "}},
    {"destination": ["DE1"]},
    {"destination": []},
    {"destination": None},
    {"destination": 5},
    {"note": "x" * 70_000},
]
TAKEN: list[dict[str, object]] = [
    {"amount": "0.01"},
    {"amount": 1},
    {"amount": 1050, "currency": "JPY"},
    {"amount": "1.234", "currency": "BHD"},
    {"amount": "1.2345", "currency": "CLF"},
    {"amount": "999999999999999.99"},
    {"destination": "ACC-1"},
    {"destination": {"iban": "DE1", "name": ""}},
]


async def _refusal(conn: Session, *args: str | None, query: str = ENQUEUE) -> asyncpg.PostgresError:
    with pytest.raises(asyncpg.PostgresError) as refused:
        await conn.fetch(query, *args)
    return refused.value


async def _counts(conn: Session) -> tuple[Any, ...]:
    row = await conn.fetchrow(
        """select (select count(*) from payment_outbox_registry),
                  (select count(*) from payment_outbox_pending),
                  (select coalesce(sum(next_sequence_id - 1), 0)::int
                     from participant_outbox_sequences)"""
    )
    assert row is not None
    return tuple(row)


async def test_the_first_call_stores_and_every_repeat_returns_the_same(
    payments: SqlPayments,
) -> None:
    rows = [(await payments.conn.fetch(ENQUEUE, *GIVEN))[0] for _ in range(3)]
    assert [row["is_new"] for row in rows] == [True, False, False]
    assert len({(row["outbox_id"], row["sequence_id"], row["created_at"]) for row in rows}) == 1
    assert rows[0]["sequence_id"] == 1
    assert await _counts(payments.conn) == (1, 1, 1)


async def test_a_key_is_remembered_after_claim_and_after_the_end(payments: SqlPayments) -> None:
    states = []
    for step in ("pending", "claimed", "ended"):
        if step == "claimed":
            flights = await payments.claim()
        if step == "ended":
            await payments.finish(flights)
        row = (await payments.conn.fetch(ENQUEUE, *GIVEN))[0]
        states.append((row["state"], row["sequence_id"]))
    assert states == [("PENDING", 1), ("DISPATCHING", 1), ("DISPATCHED", 1)]
    assert (await _counts(payments.conn))[0] == 1


@pytest.mark.parametrize(
    "changed",
    [("i", "other", "k", "ach", PAYLOAD), ("i", "p", "k", "sepa", PAYLOAD), (*GIVEN[:4], OTHER)],
)
@pytest.mark.parametrize("ended", [False, True])
async def test_a_key_with_other_content_is_refused(
    payments: SqlPayments, changed: tuple[str, ...], *, ended: bool
) -> None:
    await payments.conn.fetch(ENQUEUE, *GIVEN)
    if ended:
        await payments.finish(await payments.claim())
    before = await _counts(payments.conn)
    error = await _refusal(payments.conn, *changed)
    assert (error.sqlstate, error.detail) == ("22023", "PN502")
    assert await _counts(payments.conn) == before


async def test_the_order_of_keys_in_a_payload_does_not_matter(payments: SqlPayments) -> None:
    first = await payments.enqueue(instruction="i")
    turned = json.dumps(dict(reversed(json.loads(PAYLOAD).items())))
    assert await payments.enqueue(instruction="i", payload=turned) == first


@pytest.mark.parametrize("isolation", ["read committed", "repeatable read", "serializable"])
@pytest.mark.parametrize("participants", [("p", "p"), ("p", "q")])
async def test_a_second_enqueue_at_the_same_time_never_makes_a_second_payment(
    database_url: str, payments: SqlPayments, isolation: str, participants: tuple[str, str]
) -> None:
    async with Stage(database_url) as stage:
        ann, bob = await stage.sessions("ann", "bob")
        await bob.begin(isolation)
        await bob.run("select count(*) from payment_outbox_registry")  # its snapshot is from here
        await ann.begin()
        first = await ann.value(ENQUEUE, "i", participants[0], *GIVEN[2:])
        waiting = bob.start(ENQUEUE, "i", participants[1], *GIVEN[2:])
        await stage.until_blocked(bob, waiting)
        await ann.commit()
        answer: object
        try:
            answer = (await waiting.done())[0]["outbox_id"]
        except asyncpg.PostgresError as error:
            answer = error.sqlstate
        await bob.rollback()
    same = participants[0] == participants[1]
    if isolation == "read committed":
        assert answer == (first if same else "22023")
    else:
        assert answer == "40001", "to be repeated by the caller"
    assert await _counts(payments.conn) == (1, 1, 1)


async def test_many_at_once_under_one_key_make_one_payment(
    database_url: str, payments: SqlPayments
) -> None:
    pool = await asyncpg.create_pool(database_url, min_size=8, max_size=8)
    async with pool:
        ids = await asyncio.gather(*(pool.fetchval(ENQUEUE, *GIVEN) for _ in range(40)))
    assert len(set(ids)) == 1
    assert await _counts(payments.conn) == (1, 1, 1)


async def test_an_abort_leaves_no_gap(payments: SqlPayments) -> None:
    conn = payments.conn
    await payments.enqueue()
    transaction = conn.transaction()
    await transaction.start()
    await payments.enqueue()
    await transaction.rollback()
    await payments.enqueue()
    numbers = await conn.fetch("select sequence_id from payment_outbox_registry order by 1")
    assert [row[0] for row in numbers] == [1, 2]


async def test_a_duplicate_sequence_aborts_and_is_never_answered_with_nothing(
    conn: Session,
) -> None:
    payments = SqlPayments(conn)
    await payments.enqueue("p1")
    await conn.execute("update participant_outbox_sequences set next_sequence_id = 1")
    error = await _refusal(conn, "new", "p1", "k", "ach", PAYLOAD)
    assert error.sqlstate == "23505"
    await conn.execute("update participant_outbox_sequences set next_sequence_id = 2")
    assert await payments.enqueue("p1", instruction="new") is not None
    assert await payments.violations() == []


async def test_batches_in_opposite_order_do_not_deadlock(
    database_url: str, payments: SqlPayments
) -> None:
    pool = await asyncpg.create_pool(database_url, min_size=6, max_size=6)

    async def enqueue(turn: int) -> list[object]:
        numbers = list(range(20))
        if turn % 2:
            numbers.reverse()
        rows = await pool.fetch(
            BATCH,
            [f"i{n}" for n in numbers],
            [f"p{n % 5}" for n in numbers],
            ["k"] * 20,
            ["ach"] * 20,
            [PAYLOAD] * 20,
        )
        return sorted(row["outbox_id"] for row in rows)

    async with pool:
        answers = await asyncio.gather(*(enqueue(turn) for turn in range(30)))
    assert all(answer == answers[0] for answer in answers)
    assert await _counts(payments.conn) == (20, 20, 20)


async def test_batches_that_want_the_same_keys_for_others_do_not_deadlock(
    database_url: str, payments: SqlPayments
) -> None:
    pool = await asyncpg.create_pool(database_url, min_size=6, max_size=6)

    async def enqueue(turn: int) -> str | None:
        numbers = list(range(200))
        if turn % 2:
            numbers.reverse()
        keys = [f"i{turn // 6}-{n}" for n in numbers]
        rest = (["k"] * 200, ["ach"] * 200, [PAYLOAD] * 200)
        try:
            await pool.fetch(BATCH, keys, [f"p{turn % 6}"] * 200, *rest)
        except asyncpg.PostgresError as error:
            return error.sqlstate
        return None

    async with pool:
        ends = await asyncio.gather(*(enqueue(turn) for turn in range(30)))
    assert sorted(ends, key=str) == ["22023"] * 25 + [None] * 5


async def test_a_transaction_of_many_does_not_fill_the_lock_table_of_the_server(
    payments: SqlPayments,
) -> None:
    async with payments.conn.transaction():
        await payments.fill(1000, 10)
        held = await payments.conn.fetchval(
            "select count(*) from pg_locks where pid = pg_backend_pid()"
        )
    assert held < 100


async def test_a_repeat_does_not_wait_for_others_of_its_participant(
    database_url: str, payments: SqlPayments
) -> None:
    first = await payments.enqueue(instruction="i", participant="p")
    async with Stage(database_url) as stage:
        ann, bob = await stage.sessions("ann", "bob")
        await ann.begin()
        await ann.value(ENQUEUE, "another", *GIVEN[1:])
        assert await bob.value(ENQUEUE, *GIVEN) == first
        await ann.commit()


async def test_a_batch_answers_in_the_order_given_and_numbers_within_a_participant(
    payments: SqlPayments,
) -> None:
    rows = await payments.conn.fetch(
        BATCH,
        ["c", "a", "b", "a"],
        ["p2", "p1", "p2", "p1"],
        ["k"] * 4,
        ["ach"] * 4,
        [PAYLOAD] * 4,
    )
    assert [row["ordinal"] for row in rows] == [1, 2, 3, 4]
    assert [row["sequence_id"] for row in rows] == [1, 1, 2, 1]
    assert rows[1]["outbox_id"] == rows[3]["outbox_id"], "a key that stands twice"
    assert await _counts(payments.conn) == (3, 3, 3)


async def test_a_batch_is_all_or_nothing(payments: SqlPayments) -> None:
    for payloads in ([PAYLOAD, OTHER], [PAYLOAD, "{}"]):
        with pytest.raises(asyncpg.PostgresError) as refused:
            await payments.conn.fetch(
                BATCH, ["a", "a"], ["p", "p"], ["k", "k"], ["ach", "ach"], payloads
            )
        assert refused.value.sqlstate == "22023"
    assert await _counts(payments.conn) == (0, 0, 0)


async def test_one_payment_per_instruction_is_a_switch(payments: SqlPayments) -> None:
    await payments.enqueue(instruction="i", key="a")
    await payments.enqueue(instruction="i", key="b")
    repeated = await payments.conn.fetch("select * from payment_repeated_instructions")
    assert [(row["instruction_id"], row["payments"]) for row in repeated] == [("i", 2)]
    await payments.policy(unique_instruction=True)
    await payments.enqueue(instruction="j", key="a")
    error = await _refusal(payments.conn, "j", "p1", "b", "ach", PAYLOAD)
    assert (error.sqlstate, error.detail) == ("22023", "PN503")
    assert await payments.enqueue(instruction="j", key="a") is not None


async def test_what_could_not_be_dispatched_is_refused(payments: SqlPayments) -> None:
    whole = json.loads(PAYLOAD)
    payloads = [json.dumps(whole | change) for change in REFUSED]
    payloads += [json.dumps({k: v for k, v in whole.items() if k != gone}) for gone in whole]
    payloads += ["1", "[]", "null", json.dumps(whole).replace('"10.50"', "1e100000")]
    for payload in payloads:
        error = await _refusal(payments.conn, "i", "p", "k", "ach", payload)
        assert (error.sqlstate, error.detail) == ("22023", "PN501"), payload[:80]
    assert await _counts(payments.conn) == (0, 0, 0)


async def test_headers_are_a_small_object_and_a_refusal_tells_nothing_of_the_payload(
    payments: SqlPayments,
) -> None:
    given = ENQUEUE.replace("jsonb)", "jsonb, $6::text::jsonb)")
    for headers in ("[]", "5", "null", json.dumps({"x": "y" * 9000})):
        error = await _refusal(payments.conn, *GIVEN, headers, query=given)
        assert (error.sqlstate, error.detail) == ("22023", "PN501"), headers[:20]
        assert "DE02" not in str(error)
    row = await payments.conn.fetchrow(given, *GIVEN, '{"traceparent": "00-1"}')
    assert row is not None
    assert row["is_new"]


async def test_both_checks_know_the_same_currencies(payments: SqlPayments) -> None:
    rows = await payments.conn.fetch("select code, minor_units from penstock_payments.currencies")
    assert {row["code"]: row["minor_units"] for row in rows} == MINOR_UNITS


async def test_a_part_that_was_undone_leaves_no_gap_and_can_be_done_again(
    payments: SqlPayments,
) -> None:
    async with payments.conn.transaction():
        await payments.enqueue("p", instruction="one")
        part = payments.conn.transaction()
        await part.start()
        gone = await payments.enqueue("p", instruction="two")
        await part.rollback()
        again = await payments.enqueue("p", instruction="two")
    assert gone != again
    assert await _counts(payments.conn) == (2, 2, 2)


@pytest.mark.parametrize(
    "name", ["a/b", "\U0001f4b8", " ", "x\ny", "\u200d", "%", "a'b", "A" * 200]
)
async def test_a_participant_of_any_name_is_served_and_can_be_paused(
    payments: SqlPayments, name: str
) -> None:
    payment = await payments.enqueue(name)
    await payments.conn.fetch("select penstock.pause_target('participant/' || $1, 'r')", name)
    assert await payments.claim() == []
    await payments.conn.fetch("select penstock.resume_target('participant/' || $1, 'r')", name)
    assert [(f.id, f.participant) for f in await payments.claim()] == [(payment, name)]


async def test_what_can_be_dispatched_is_taken(payments: SqlPayments) -> None:
    for change in TAKEN:
        await payments.enqueue(payload=json.dumps(json.loads(PAYLOAD) | change))
    assert (await _counts(payments.conn))[0] == len(TAKEN)


async def test_a_rail_says_what_a_destination_needs(payments: SqlPayments) -> None:
    await payments.rail("sepa", destination_keys=["iban", "name"])
    error = await _refusal(payments.conn, "i", "p", "k", "sepa", PAYLOAD)
    assert error.sqlstate == "22023"
    assert "iban, name" in str(error)
    whole = json.loads(PAYLOAD) | {"destination": {"iban": "DE1", "name": "Ann"}}
    await payments.enqueue(rail="sepa", payload=json.dumps(whole))


async def test_unknown_rails_are_taken_unless_the_policy_says_otherwise(
    payments: SqlPayments,
) -> None:
    await payments.enqueue(rail="somewhere")
    await payments.policy(known_rails_only=True)
    error = await _refusal(payments.conn, "new", "p", "k", "elsewhere", PAYLOAD)
    assert (error.sqlstate, error.detail) == ("22023", "PN501")


async def test_every_argument_is_needed(payments: SqlPayments) -> None:
    for missing in range(5):
        given: list[str | None] = [*GIVEN]
        given[missing] = None
        assert (await _refusal(payments.conn, *given)).sqlstate == "22023", missing
