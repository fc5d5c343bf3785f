"""The seed's queue functions, fenced and with named columns."""

import json

import asyncpg
import pytest
from tests.support.intake import SqlIntake


async def test_send_read_delete(intake: SqlIntake) -> None:
    sent = [
        await intake.conn.fetchval("select intake_queue_send($1)", json.dumps({"n": n}))
        for n in range(3)
    ]
    rows = await intake.conn.fetch("select * from intake_queue_read(30, 2)")
    assert [row["msg_id"] for row in rows] == sent[:2]
    assert list(rows[0].keys()) == ["msg_id", "read_ct", "enqueued_at", "vt", "message"]
    assert [row["read_ct"] for row in rows] == [1, 1]
    gone = await intake.conn.fetch("select * from intake_queue_delete($1)", [sent[0], 999])
    assert [row[0] for row in gone] == [sent[0]]
    assert await intake.depth() == 2


@pytest.mark.parametrize("arguments", ["null, 1", "1, null", "1, 0", "-1, 1"])
async def test_read_refuses_senseless_numbers(intake: SqlIntake, arguments: str) -> None:
    with pytest.raises(asyncpg.InvalidParameterValueError):
        await intake.conn.fetch(f"select * from intake_queue_read({arguments})")


async def test_send_refuses_what_is_no_object(intake: SqlIntake) -> None:
    with pytest.raises(asyncpg.InvalidParameterValueError):
        await intake.conn.fetch("select intake_queue_send('[1]')")


async def test_routing_moves_a_message_with_its_story(intake: SqlIntake) -> None:
    msg_id = await intake.conn.fetchval('select intake_queue_send(\'{"pool_id": "p"}\')')
    await intake.conn.fetch("select * from intake_queue_read(30, 1)")
    dead_id = await intake.conn.fetchval(
        "select intake_route_to_dlq($1, '{\"forged\": true}', 1)", msg_id
    )
    assert (await intake.depth(), await intake.depth("intake_dlq")) == (0, 1)
    row = await intake.conn.fetchrow("select * from pgmq.q_intake_dlq where msg_id = $1", dead_id)
    assert row is not None
    message = json.loads(row["message"])
    assert message.pop("routed_to_dlq_at")
    assert message == {"pool_id": "p", "original_msg_id": msg_id, "final_read_ct": 1}
    assert json.loads(row["headers"])["error_code"] == "MAX_RETRIES"


async def test_routing_is_fenced_by_the_read_count(intake: SqlIntake) -> None:
    """Two workers past their lease: the second writes no second dead letter."""
    msg_id = await intake.conn.fetchval("select intake_queue_send('{}')")
    await intake.conn.fetch("select * from intake_queue_read(0, 1)")
    await intake.conn.fetch("select * from intake_queue_read(0, 1)")
    route = "select intake_route_to_dlq($1, '{}', $2)"
    assert await intake.conn.fetchval(route, msg_id, 1) is None
    assert await intake.conn.fetchval(route, msg_id, 2) is not None
    assert await intake.conn.fetchval(route, msg_id, 2) is None
    assert await intake.conn.fetchval(route, 12345, 0) is None
    assert await intake.depth("intake_dlq") == 1


async def test_a_snapshot_has_one_row_per_active_pool_with_global_depths(
    intake: SqlIntake,
) -> None:
    for pool, count in (("a", 3), ("b", 2), ("off", 1)):
        await intake.stock(count, pool)
    await intake.configure("off", is_active=False)
    await intake.reserve("u", "v", pool="a")
    (row,) = await intake.claim(1)
    await intake.complete(row)
    await intake.conn.execute("select snapshot_engine_metrics()")
    rows = await intake.conn.fetch("select * from engine_metrics order by pool_id")
    assert [tuple(row)[2:] for row in rows] == [("a", 1, 1, 1, 1, 0), ("b", 2, 0, 0, 1, 0)]


async def test_old_metrics_are_purged_in_portions(intake: SqlIntake) -> None:
    await intake.stock(1)
    for _ in range(3):
        await intake.conn.execute("select snapshot_engine_metrics()")
    await intake.shift(8 * 86400)
    await intake.conn.execute("select snapshot_engine_metrics()")
    assert await intake.conn.fetchval("select intake_purge_metrics(p_limit => 2)") == 2
    assert await intake.conn.fetchval("select intake_purge_metrics()") == 1
    assert await intake.conn.fetchval("select count(*) from engine_metrics") == 1


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("01a1e0c4-b70a-73d9-91cf-3e3aec8e42cb", True),
        ("01A1E0C4-B70A-73D9-91CF-3E3AEC8E42CB", True),
        ("-1a1e0c4-b70a-73d9-91cf-3e3aec8e42cb", False),
        ("01a1e0c4-b70a-73d9-91cf-3e3aec8e42cg", False),
        ("01a1e0c4-b70a-73d9-91cf-3e3aec8e42cb\n", False),
        ("{1a1e0c4-b70a-73d9-91cf-3e3aec8e42c}", False),
        ("", False),
        ("é1a1e0c4-b70a-73d9-91cf-3e3aec8e42cb", False),
        (None, False),
    ],
)
async def test_a_bad_id_is_no_id_and_no_error(
    intake: SqlIntake, text: str | None, good: bool
) -> None:
    found = await intake.conn.fetchval("select penstock_intake.as_uuid($1)", text)
    assert (found is not None) == good
