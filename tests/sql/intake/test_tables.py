"""The shape of the engine's tables is the seed's, and safe by default."""

import asyncpg
import pytest
from tests.support.intake import Connection, SqlIntake

PUBLIC_FUNCTIONS = (
    "claim_resource_and_queue",
    "intake_queue_read",
    "intake_queue_delete",
    "intake_queue_send",
    "intake_route_to_dlq",
    "snapshot_engine_metrics",
    "reap_orphaned_slots",
)


async def columns(conn: Connection, table: str) -> dict[str, tuple[str, bool, str | None]]:
    rows = await conn.fetch(
        """
        select attname, format_type(atttypid, atttypmod) as kind, attnotnull,
               pg_get_expr(adbin, adrelid) as fallback
        from pg_attribute left join pg_attrdef on adrelid = attrelid and adnum = attnum
        where attrelid = $1::text::regclass and attnum > 0 and not attisdropped
        """,
        table,
    )
    return {row[0]: (row[1], row[2], row[3]) for row in rows}


async def index(conn: Connection, name: str) -> str:
    found = await conn.fetchval("select pg_get_indexdef($1::text::regclass)", name)
    assert isinstance(found, str)
    return found


async def test_slot_status_has_the_three_labels_in_order(conn: Connection) -> None:
    labels = await conn.fetchval("select enum_range(null::slot_status)::text")
    assert labels == "{AVAILABLE,RESERVED,CONSUMED}"


async def test_inventory_slots_has_the_seeds_columns(conn: Connection) -> None:
    found = await columns(conn, "public.inventory_slots")
    assert found["id"] == ("uuid", True, "gen_random_uuid()")
    assert found["pool_id"] == ("text", True, None)
    assert found["status"] == ("slot_status", True, "'AVAILABLE'::slot_status")
    assert found["locked_by"] == ("text", False, None)
    assert found["locked_at"] == ("timestamp with time zone", False, None)
    assert "(pool_id, status) WHERE (status = 'AVAILABLE'" in await index(
        conn, "public.idx_available_slots"
    )


async def test_no_business_table_is_unlogged(conn: Connection) -> None:
    """An unlogged inventory is empty after a crash while its queue is not."""
    unlogged = await conn.fetch(
        """
        select oid::regclass::text from pg_class where relpersistence <> 'p' and relkind = 'r'
        and (relnamespace in ('public'::regnamespace, 'penstock_intake'::regnamespace)
             or relname like '%intake%')
        """
    )
    assert unlogged == []


async def test_the_primary_key_has_no_second_unique_index_on_id(conn: Connection) -> None:
    found = await conn.fetchval(
        """
        select count(*) from pg_index where indrelid = 'public.inventory_slots'::regclass
        and indisunique and indkey::text = '1'
        """
    )
    assert found == 1


async def test_engine_config_has_the_seeds_columns_and_defaults(conn: Connection) -> None:
    assert await columns(conn, "public.engine_config") == {
        "pool_id": ("text", True, None),
        "batch_size": ("integer", True, "100"),
        "visibility_timeout_sec": ("integer", True, "45"),
        "max_retries": ("integer", True, "10"),
        "is_active": ("boolean", True, "true"),
        "validation_webhook_url": ("text", False, None),
        "commit_rpc_name": ("text", True, "'finalize_transaction'::text"),
        "commit_webhook_url": ("text", False, None),
    }
    foreign = "select count(*) from pg_constraint where contype = 'f' and conrelid = any($1)"
    tables = await conn.fetchval(
        "select array_agg(oid) from pg_class where relname in ('engine_config', 'inventory_slots')"
    )
    assert await conn.fetchval(foreign, tables) == 0


async def test_engine_metrics_has_identity_key_and_index(conn: Connection) -> None:
    found = await columns(conn, "public.engine_metrics")
    assert list(found) == [
        "id",
        "captured_at",
        "pool_id",
        "available_slots",
        "reserved_slots",
        "consumed_slots",
        "queue_depth",
        "dlq_depth",
    ]
    assert found["captured_at"] == ("timestamp with time zone", True, "now()")
    assert found["dlq_depth"] == ("integer", True, "0")
    identity = "select attidentity::text from pg_attribute where attrelid = $1::regclass"
    assert await conn.fetchval(identity + " and attname = 'id'", "public.engine_metrics") == "a"
    assert "(pool_id, captured_at DESC)" in await index(conn, "public.idx_metrics_pool_ts")


async def test_both_queues_exist(conn: Connection) -> None:
    names = await conn.fetch("select queue_name::text from pgmq.list_queues() order by 1")
    assert [row[0] for row in names] == ["intake_dlq", "intake_queue"]


async def test_every_table_has_row_security_and_no_rights_for_everyone(conn: Connection) -> None:
    open_tables = await conn.fetch(
        """
        select c.oid::regclass::text from pg_class c
        where c.relkind = 'r' and (not c.relrowsecurity or exists (
            select from aclexplode(c.relacl) a where a.grantee = 0))
        and (c.relnamespace in ('penstock_intake'::regnamespace)
             or c.relname in ('inventory_slots', 'engine_config', 'engine_metrics',
                              'intake_pools', 'q_intake_queue', 'q_intake_dlq'))
        """
    )
    assert open_tables == []


async def test_no_function_can_be_executed_by_everyone(conn: Connection) -> None:
    found = await conn.fetch(
        """
        select p.oid::regprocedure::text from pg_proc p
        where (p.pronamespace = 'penstock_intake'::regnamespace
               or p.proname like 'intake%' or p.proname = any ($1))
          and (p.proacl is null or exists (select from aclexplode(p.proacl) a where a.grantee = 0))
        """,
        list(PUBLIC_FUNCTIONS),
    )
    assert found == []


async def test_definer_functions_fix_their_path_and_belong_to_a_role_without_login(
    conn: Connection,
) -> None:
    found = await conn.fetch(
        """
        select p.oid::regprocedure::text from pg_proc p join pg_roles r on r.oid = p.proowner
        where p.prosecdef and p.pronamespace in ('public'::regnamespace,
                                                 'penstock_intake'::regnamespace)
          and (r.rolcanlogin
               or not exists (select from unnest(p.proconfig) c
                              where c like 'search_path=pg_catalog%'))
        """
    )
    assert found == []


@pytest.mark.parametrize("call", ["reap_orphaned_slots('0')", "intake_queue_delete('{1}')"])
async def test_an_ordinary_login_cannot_touch_the_engine(conn: Connection, call: str) -> None:
    await conn.execute("set role penstock_intake_ingest")
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await conn.fetch(f"select {call}")
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await conn.fetch("select * from inventory_slots")


async def test_a_slot_with_a_started_commit_cannot_be_put_on_offer_by_hand(
    intake: SqlIntake,
) -> None:
    await intake.stock(1)
    slot = await intake.buy("u")
    await intake.configure()
    await intake.claim()
    with pytest.raises(asyncpg.PostgresError, match="never offered again"):
        await intake.conn.execute(
            "update inventory_slots set status = 'AVAILABLE' where id = $1", slot
        )


async def test_jobs_are_scheduled(conn: Connection) -> None:
    jobs = {
        row[0]: row[1] for row in await conn.fetch("select job, every_s from penstock.schedule")
    }
    assert jobs["metrics_snapshot"] == 60
    assert jobs["reap_orphaned_slots"] == 120


async def test_functions_that_discourage_scans_do_not_compile_them(conn: Connection) -> None:
    """Before version 18 a discouraged scan looks so costly that JIT compiles it, for a second."""
    found = await conn.fetch(
        """
        select p.oid::regprocedure::text from pg_proc p
        where 'enable_seqscan=off' = any (p.proconfig) and not 'jit=off' = any (p.proconfig)
          and (p.pronamespace = 'penstock_intake'::regnamespace or p.proname like 'intake%')
        """
    )
    assert found == []
