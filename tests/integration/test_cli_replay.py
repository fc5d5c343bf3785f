"""A replay that watches itself. Triggers stand in for receivers: they end items at once."""

from uuid import UUID

import psycopg
from tests.support.cli import Cli

Conn = psycopg.Connection[tuple[object, ...]]

_DIES_AGAIN = """
create function public.dies_again() returns trigger language plpgsql as $$
begin
    new.pos := null;
    new.dead_at := penstock.clock();
    return new;
end $$;
create trigger dies_again before update on public.outbox
    for each row when (old.dead_at is not null and new.dead_at is null)
    execute function public.dies_again();
"""
_IS_DELIVERED = """
create function public.is_delivered() returns trigger language plpgsql as $$
begin
    delete from public.outbox where seq = new.seq;
    insert into public.outbox_archive (seq, id, topic, payload, headers, created_at, lease_epoch,
                                       total_attempts, replay_count, state, delivered_at)
    values (new.seq, new.id, new.topic, new.payload, new.headers, new.created_at, new.lease_epoch,
            new.total_attempts, new.replay_count, 'DELIVERED', penstock.clock());
    return null;
end $$;
create trigger is_delivered after update on public.outbox
    for each row when (old.dead_at is not null and new.dead_at is null)
    execute function public.is_delivered();
"""


def replay(cli: Cli, *more: str) -> tuple[int, dict[str, object]]:
    ran = cli("dead", "replay", "outbox", "--all", "--reason", "x", "--yes", "--json", *more)
    return ran.code, ran.document


def test_a_canary_that_dies_again_stops_the_replay(
    cli: Cli, dead_events: list[UUID], sync_conn: Conn
) -> None:
    sync_conn.execute(_DIES_AGAIN)
    code, document = replay(cli, "--canary", "1")
    assert code == 1
    assert (document["replayed"], document["failed_again"]) == (1, 1)
    assert document["stopped"] is True


def test_a_canary_that_is_delivered_lets_the_rest_follow(
    cli: Cli, dead_events: list[UUID], sync_conn: Conn
) -> None:
    sync_conn.execute(_IS_DELIVERED)
    code, document = replay(cli, "--canary", "1")
    assert code == 0
    assert (document["replayed"], document["failed_again"]) == (3, 0)
    assert document["stopped"] is False


def test_a_replay_whose_items_die_again_stops_early(
    cli: Cli, dead_events: list[UUID], sync_conn: Conn
) -> None:
    sync_conn.execute(_DIES_AGAIN)
    code, document = replay(cli, "--rate", "1")
    assert code == 1
    assert (document["replayed"], document["failed_again"]) == (2, 2)
