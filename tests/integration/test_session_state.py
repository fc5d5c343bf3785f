"""What a handler leaves in a session is gone before the next one has it; ours costs nothing."""

from penstock.kernel.database import Database

STATE = "select current_setting('application_name')"
LOCKS = "select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()"


async def test_what_a_lent_session_was_left_with_is_undone(database_url: str) -> None:
    database = Database(database_url, size=1)
    await database.open()
    async with database.transaction() as conn:
        await conn.execute("select pg_advisory_lock(7); set application_name = 'mine'")
    async with database.connection() as conn:
        assert await conn.fetchval(STATE) == "penstock"
        assert await conn.fetchval(LOCKS) == 0
    await database.close()


async def test_a_session_that_only_we_used_is_not_asked_about(database_url: str) -> None:
    database = Database(database_url, size=1)
    await database.open()
    async with database.connection() as conn:
        await conn.execute("set application_name = 'ours'")
    async with database.connection() as conn:
        # No statement of ours does this; it shows that no round trip was spent on resetting.
        assert await conn.fetchval(STATE) == "ours"
    await database.close()
