"""Messages below the watermark that come back: none is forgotten, none holds up the others."""

from tests.support.intake import SqlIntake

PAUSE = "select penstock.pause_target('pool/demo', 'test')"
RESUME = "select penstock.resume_target('pool/demo', 'test')"


async def give_back_below_the_floor(intake: SqlIntake, count: int = 1) -> None:
    """The sweep has passed these messages for good when they come back unread."""
    await intake.stock(count)
    await intake.configure()
    await intake.reserve(*(f"u{n}" for n in range(count)))
    rows = await intake.claim()
    await intake.tend()
    await intake.conn.execute(
        "select setval('penstock.intake_floor', (select max(msg_id) from pgmq.q_intake_queue))"
    )
    given = await intake.conn.fetch(
        "select * from intake_give_back($1, $2, $3)",
        [row["msg_id"] for row in rows],
        [row["read_ct"] for row in rows],
        [row["vt"] for row in rows],
    )
    assert len(given) == count


async def without_net(intake: SqlIntake) -> None:
    """Housekeeping that does not look from zero."""
    await intake.conn.fetch("select penstock.net_due('intake')")
    await intake.tend()


async def test_what_is_given_back_while_its_pool_is_paused_comes_back_at_once(
    intake: SqlIntake,
) -> None:
    await give_back_below_the_floor(intake, 3)
    await intake.conn.execute(PAUSE)
    for _ in range(3):
        assert await intake.claim() == []
        assert not await intake.conn.fetchval("select intake_ready()"), "nothing to claim now"
        await intake.shift(6)
        await without_net(intake)
    await intake.conn.execute(RESUME)
    assert await intake.conn.fetchval("select intake_ready()")
    assert [row["read_ct"] for row in await intake.claim()] == [1, 1, 1]
    assert await intake.conn.fetchval("select count(*) from penstock_intake.returned") == 0


async def test_what_waits_does_not_stand_before_the_others(intake: SqlIntake) -> None:
    await give_back_below_the_floor(intake, 3)
    await intake.conn.execute(PAUSE)
    assert await intake.claim() == []
    await intake.stock(1, "other")
    await intake.reserve("v", pool="other")
    await intake.conn.execute(
        "insert into penstock_intake.returned select max(msg_id) from pgmq.q_intake_queue"
    )
    await intake.tend()
    await intake.conn.execute("select setval('penstock.intake_wm', 1000)")
    assert [row["pool_id"] for row in await intake.claim(1)] == ["other"]


async def test_entries_without_a_message_go(intake: SqlIntake) -> None:
    await intake.conn.execute("insert into penstock_intake.returned values (77)")
    assert await intake.claim() == []
    assert await intake.conn.fetchval("select count(*) from penstock_intake.returned") == 0


async def test_a_retry_that_commits_late_is_found_without_the_net(intake: SqlIntake) -> None:
    """Its time was taken half a minute before it could be seen."""
    await intake.stock(1)
    await intake.configure()
    await intake.reserve("u")
    await intake.claim()
    await intake.tend()
    await intake.shift(120)
    await intake.conn.execute("update pgmq.q_intake_queue set vt = penstock.clock() + '1 hour'")
    await without_net(intake)
    await intake.conn.execute(
        "update pgmq.q_intake_queue set vt = penstock.clock() - interval '30 seconds'"
    )
    await without_net(intake)
    assert [row["read_ct"] for row in await intake.claim()] == [2]
