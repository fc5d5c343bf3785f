"""Operators: what they may do, with an audit row for each event and none besides."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from tests.support.inbox import Connection, SqlInbox, arrival
from tests.support.interleave import Stage

from penstock.inbox import store
from penstock.inbox.model import DeadQuery
from penstock.kernel.errors import NotFound, ReasonRequired, Refused, WrongUsage

AUDITED = "select row_data ->> 'event_id' from audit.audit_logs where operation = $1 order by at"


async def _dead(
    inbox: SqlInbox, webhook_id: UUID, *event_ids: str, code: str = "BAD"
) -> list[UUID]:
    ids = await inbox.send(webhook_id, *event_ids)
    await inbox.fail(await inbox.claim(), "reject", code=code)
    return ids


async def test_a_replay_keeps_the_event_and_gives_it_a_new_cycle(
    inbox: SqlInbox, stripe: UUID
) -> None:
    (event,) = await _dead(inbox, stripe, "evt")
    done = await store.replay(inbox.conn, [event], "fixed", "ada", None)
    assert [one for one, _ in done] == [event]
    row = await inbox.row(event)
    assert (row["status"], row["attempts"], row["total_attempts"], row["replay_count"]) == (
        "pending",
        0,
        1,
        1,
    )
    audited = await inbox.conn.fetchrow("select operator, reason, row_data from audit.audit_logs")
    assert audited is not None
    assert (audited["operator"], audited["reason"]) == ("ada", "fixed")
    assert await inbox.counter("replay", "operator") == 1
    assert [item.event_id for item in await inbox.claim()] == ["evt"]


async def test_a_replay_without_a_reason_changes_nothing(inbox: SqlInbox, stripe: UUID) -> None:
    (event,) = await _dead(inbox, stripe, "evt")
    with pytest.raises(ReasonRequired):
        await store.replay(inbox.conn, [event], " ", "ada", None)
    assert await inbox.status("evt") == "dead_letter"


async def test_only_dead_letters_are_replayed(inbox: SqlInbox, stripe: UUID) -> None:
    dead = await _dead(inbox, stripe, "dead")
    ready = await inbox.send(stripe, "leased", "ready")
    await inbox.claim(1)
    done = await store.replay(inbox.conn, [*dead, *ready], "why", None, None)
    assert [one for one, _ in done] == dead
    assert [row[0] for row in await inbox.conn.fetch(AUDITED, "replay")] == ["dead"]


async def test_a_replay_that_races_another_and_a_claim_gives_one_cycle(
    inbox: SqlInbox, stripe: UUID, database_url: str
) -> None:
    (event,) = await _dead(inbox, stripe, "evt")
    async with Stage(database_url) as stage:
        first, second = await stage.sessions("first", "second")
        await first.begin()
        await store.replay(first.conn, [event], "one", "a", None)
        assert await store.replay(second.conn, [event], "two", "b", None) == []
        await first.commit()
        (item,) = await inbox.claim()
        assert await store.replay(second.conn, [event], "three", "b", None) == []
    assert await inbox.status("evt") == "processing"
    assert await inbox.finish([item]) == []
    assert len(await inbox.conn.fetch(AUDITED, "replay")) == 1


async def test_replay_and_discard_at_once_have_one_winner(
    inbox: SqlInbox, stripe: UUID, database_url: str
) -> None:
    ids = await _dead(inbox, stripe, *(f"e{n}" for n in range(20)))
    async with Stage(database_url) as stage:
        one, two = await stage.sessions("one", "two")
        discard = "select id from penstock.discard('inbox', $1, 'away')"
        replayed, discarded = await asyncio.gather(
            store.replay(one.conn, ids, "back", None, None), two.conn.fetch(discard, ids)
        )
    assert {i for i, _ in replayed}.isdisjoint({row["id"] for row in discarded})
    audits = await inbox.conn.fetchval("select count(*) from audit.audit_logs")
    assert audits == len(replayed) + len(discarded)


async def test_a_discarded_event_is_archived_and_still_known(inbox: SqlInbox, stripe: UUID) -> None:
    (event,) = await _dead(inbox, stripe, "evt")
    await inbox.conn.execute("select penstock.discard('inbox', $1, 'poison')", [event])
    assert await inbox.state(event) == "DISCARDED"
    assert await inbox.receive(arrival(stripe, "evt")) == ["duplicate"]


async def test_an_unrepresentable_event_is_not_replayed(inbox: SqlInbox, stripe: UUID) -> None:
    bad = arrival(stripe, "evt", "nonsense")
    await inbox.receive(bad)
    assert await store.replay(inbox.conn, [bad.id], "why", None, None) == []


async def test_filters_choose_among_dead_letters(inbox: SqlInbox, stripe: UUID) -> None:
    other = await inbox.source("other")
    await _dead(inbox, stripe, "a", "b", code="ONE")
    await _dead(inbox, other, "a", code="TWO")

    async def found(**query: Any) -> set[tuple[str | None, str]]:
        rows = await store.dead(inbox.conn, DeadQuery(**query))
        return {(row.source, row.event_id) for row in rows}

    everything = {("stripe", "a"), ("stripe", "b"), ("other", "a")}
    assert await found() == everything
    assert await found(source="other") == await found(webhook_id=other) == {("other", "a")}
    assert await found(event_id="a") == {("stripe", "a"), ("other", "a")}
    assert await found(error_code="ONE", event_type="t") == {("stripe", "a"), ("stripe", "b")}
    now = datetime.now(UTC)
    assert await found(before=now - timedelta(hours=1)) == set()
    assert await found(after=now - timedelta(hours=1)) == everything
    assert len(await found(limit=2)) == 2
    assert await found(event_id="'; drop table webhook_events; --") == set()


async def test_a_replay_may_give_unfinished_effects_another_key(
    inbox: SqlInbox, stripe: UUID
) -> None:
    (event,) = await inbox.send(stripe, "evt")
    (item,) = await inbox.claim()
    for name in ("sent", "open"):
        await store.begin_effect(inbox.conn, event, item.token, name=name, key="k")
    await store.end_effect(inbox.conn, event, name="sent", key="k", external_ref=None)
    await inbox.fail([item], "reject")
    await store.replay(inbox.conn, [event], "new key", "ada", "2")
    rows = await inbox.conn.fetch("select handler, idempotency_key from webhook_effects order by 1")
    assert [tuple(row) for row in rows] == [("open", "k:2"), ("sent", "k")]


async def test_the_story_tells_everything_but_the_payload(inbox: SqlInbox, stripe: UUID) -> None:
    (event,) = await _dead(inbox, stripe, "evt")
    story = await inbox.conn.fetchval("select penstock.story($1)::text", event)
    assert '"REJECT"' in story
    assert '"evt"' in story
    assert '"payload": null' in story


async def test_sources_are_put_and_rotated_with_an_audit_row(inbox: SqlInbox) -> None:
    put = ("stripe", "stripe", ["env:OLD"], '{"tolerance_s": 60}', "new", "ada")
    source_id, _ = await store.put_source(inbox.conn, *put)
    assert (await store.put_source(inbox.conn, *put))[0] == source_id
    await store.rotate_source(inbox.conn, "stripe", "env:NEW", "leaked", "ada")
    (source,) = await store.sources(inbox.conn)
    assert (source.secret_refs, source.tolerance_s) == (("env:NEW", "env:OLD"), 60)
    await store.rotate_source(inbox.conn, "stripe", None, "done", "ada")
    (source,) = await store.sources(inbox.conn)
    assert source.secret_refs == ("env:NEW",)
    assert await inbox.conn.fetchval("select count(*) from audit.audit_logs") == 4
    with pytest.raises(WrongUsage):
        await store.put_source(inbox.conn, "x", "stripe", ["whsec_written_down"], "{}", "r", None)
    with pytest.raises(NotFound):
        await store.rotate_source(inbox.conn, "nobody", "env:NEW", "r", None)


async def test_a_route_may_name_only_an_allowed_function(inbox: SqlInbox, stripe: UUID) -> None:
    route = ("stripe", "*", "sql", "public.take", None, "r", None)
    with pytest.raises(Refused):
        await store.put_route(inbox.conn, *route)
    await inbox.conn.execute("insert into webhook.route_functions values ('public.take')")
    await store.put_route(inbox.conn, *route)
    assert [r.target for r in await store.routes(inbox.conn)] == ["public.take"]
    with pytest.raises(Refused):
        await store.call_route(inbox.conn, "pg_catalog.pg_sleep", "1")


async def test_a_plain_role_gets_nothing_but_its_verbs(conn: Connection) -> None:
    wanted = {
        "penstock_inbox_ingest": {"receive", "sources"},
        "penstock_readonly": {"sources", "inbox_recent", "inbox_prove"},
    }
    for role, allowed in wanted.items():
        rows = await conn.fetch(
            "select distinct p.proname::text as name from pg_proc p join pg_namespace n on"
            " n.oid = p.pronamespace where n.nspname = 'webhook'"
            " and has_function_privilege($1, p.oid, 'execute')",
            role,
        )
        assert {row["name"] for row in rows} == allowed


async def test_a_worker_without_rights_here_may_ask_whether_it_has_any(inbox: SqlInbox) -> None:
    await inbox.conn.execute("set role penstock_payments_executor")
    assert not await store.may_route(inbox.conn)
    await inbox.conn.execute("set role penstock_inbox_executor")
    assert await store.may_route(inbox.conn)
