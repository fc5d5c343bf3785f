"""Broken versions of our functions. A test that does not notice them proves nothing."""

_END = """
create or replace function penstock.end_sweep(p_name text, p_lowest_left bigint) returns void
language plpgsql as $$
declare p penstock.position;
begin
    select * into p from penstock.position where name = p_name;
    perform setval(p.floor, greatest(pg_sequence_last_value(p.floor), {target}));
end $$;
"""

# The floor follows the watermark at once, as if nobody could still be about to commit below it.
FLOOR_FOLLOWS_WATERMARK = _END.format(
    target="least(pg_sequence_last_value(p.watermark),"
    " coalesce(p_lowest_left - 1, pg_sequence_last_value(p.watermark)))"
)
# The floor passes rows that the sweep had to leave because somebody held them.
FLOOR_PASSES_LOCKED = _END.format(target="pg_sequence_last_value(p.settled)")
# Whether the mark has settled is asked after looking for rows instead of before.
SETTLES_TOO_LATE = _END.format(
    target="""case
        when pg_sequence_last_value(p.mark_xid) > 0
             and pg_snapshot_xmin(pg_current_snapshot())::text::bigint
                 >= pg_sequence_last_value(p.mark_xid)
        then least(pg_sequence_last_value(p.mark_pos),
                   coalesce(p_lowest_left - 1, pg_sequence_last_value(p.mark_pos)))
        else 0 end"""
)
# The mark remembers the snapshot's upper end, which a transaction that is open may already have.
MARKS_BY_SNAPSHOT = """
create or replace function penstock.begin_sweep(p_name text)
returns table (lo bigint, hi bigint) language plpgsql as $$
declare p penstock.position; w bigint; s pg_snapshot;
begin
    select * into p from penstock.position where name = p_name;
    w := pg_sequence_last_value(p.watermark);
    s := pg_current_snapshot();
    if pg_snapshot_xmin(s)::text::bigint >= pg_sequence_last_value(p.mark_xid) then
        perform setval(p.settled, pg_sequence_last_value(p.mark_pos));
        perform setval(p.mark_pos, w), setval(p.mark_xid, pg_snapshot_xmax(s)::text::bigint);
    end if;
    return query select pg_sequence_last_value(p.floor), w;
end $$;
"""
# The watermark passes rows under claim.
WATERMARK_PASSES_CLAIMED = """
create or replace function penstock.raise_watermark(p_name text, p_lowest bigint) returns void
language sql as $$
    select setval(p.watermark, pg_sequence_last_value(p.next_pos))
    from penstock.position p where p.name = p_name
$$;
"""
# No sweep at all: what commits late is never looked for.
NO_SWEEP = """
create or replace function penstock.begin_sweep(p_name text)
returns table (lo bigint, hi bigint) language sql as $$ select 1, 2 where false $$;
"""
# A row that comes back keeps a low position of its own instead of a new, higher one.
RETURNS_LOW = """
create or replace function app.outbox_bring_due(p_from_zero boolean default false) returns integer
language plpgsql as $$
declare v_count integer;
begin
    update public.outbox set pos = seq, next_attempt_at = null
    where next_attempt_at <= penstock.clock();
    get diagnostics v_count = row_count;
    return v_count;
end $$;
"""

_REPLACE = """
do $do$
declare v text := (
    select pg_get_functiondef(p.oid) from pg_proc p
    where p.pronamespace::regnamespace || '.' || p.proname = '{function}'
      and position($a${old}$a$ in p.prosrc) > 0);
begin
    if v is null then
        raise 'the mutant of {function} no longer fits';
    end if;
    execute replace(v, $a${old}$a$, $a${new}$a$);
end $do$;
"""

# The state machine of the outbox with one rule broken each.
STATES = {
    # A delivery needs no matching token: whoever had the event once may finish it.
    "finish-without-fence": _REPLACE.format(
        function="app.outbox_archive_rows",
        old="o.processing_token is not distinct from f.token",
        new="(f.token is null) = (o.processing_token is null)",
    ),
    "release-counts": _REPLACE.format(
        function="app.outbox_release", old="attempts = o.attempts - 1", new="attempts = o.attempts"
    ),
    "reap-too-early": _REPLACE.format(
        function="app.outbox_reap",
        old="v_now timestamptz := penstock.clock()",
        new="v_now timestamptz := penstock.clock() + interval '20 seconds'",
    ),
    "replay-of-anything": _REPLACE.format(
        function="app.outbox_replay",
        old="(o.dead_at is not null or o.held_at is not null)",
        new="o.processing_token is null and o.next_attempt_at is null",
    ),
    "no-attempts-limit": _REPLACE.format(
        function="app.outbox_mark_failed",
        old="v_max integer := (select c.max_attempts",
        new="v_max integer := (select 99 + c.max_attempts",
    ),
}
