-- The next in each line becomes its head. A row that somebody holds is left: skipping to the one
-- after it would break the order. Starting above the last head's number keeps the look clear of
-- what has already gone through, however long a snapshot is held.
create or replace function app.outbox_lead(p_hashes bigint[], p_after bigint[]) returns bigint[]
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_bitmapscan = off
as $$
declare
    v_now timestamptz := penstock.clock();
    v_tids tid[];
    v_led bigint[];
begin
    v_tids := array(
        select n.tid
        from unnest(p_hashes, p_after) as f (key_hash, seq)
        cross join lateral (
            select o.ctid as tid from public.outbox o
            where o.key_hash = f.key_hash and o.turn > f.seq
            order by o.turn limit 1) n);
    v_tids := array(
        select o.ctid from public.outbox o
        where o.ctid = any (v_tids) and o.turn is not null
        for update skip locked);
    if cardinality(v_tids) = 0 then
        return p_hashes;
    end if;
    with led as (
        update public.outbox o
        set turn = null,
            pos = case when coalesce(o.deliver_at <= v_now, true)
                then nextval('penstock.outbox_next') end,
            next_attempt_at = case when o.deliver_at > v_now then o.deliver_at end
        where o.ctid = any (v_tids)
        returning o.key_hash
    )
    select array_agg(l.key_hash) into v_led from led l;
    return array(select unnest(p_hashes) except select unnest(v_led));
end
$$;

comment on function app.outbox_lead(bigint[], bigint[]) is
    'Make the next in line of each key its head; returns the keys that got none.';
revoke all on function app.outbox_lead(bigint[], bigint[]) from public;
