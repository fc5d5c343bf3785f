-- Rails may bound how many of their payments are in flight. The count must not change between
-- looking and leasing, so claims that meet a bounded rail go one after the other.
create or replace function penstock_payments.within_bounds(p_ids uuid[]) returns uuid[]
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
begin
    if not exists (select from public.payment_rails r where r.max_concurrency is not null) then
        return p_ids;
    end if;
    perform pg_advisory_xact_lock(hashtextextended('penstock payment rail bounds', 0));
    return array(
        with bound as materialized (
            select r.rail_type, r.max_concurrency - (
                       select count(*) from public.payment_outbox_inflight i
                       where i.rail_type = r.rail_type and i.held_at is null) as room
            from public.payment_rails r where r.max_concurrency is not null
        )
        select n.outbox_id
        from (
            select p.outbox_id, p.rail_type, w.ord,
                   row_number() over (partition by p.rail_type order by w.ord) as nth
            from unnest(p_ids) with ordinality as w (id, ord)
            join public.payment_outbox_pending p on p.outbox_id = any (array[w.id])
        ) n
        where n.nth <= coalesce(
            (select b.room from bound b where b.rail_type = n.rail_type), n.nth)
        order by n.ord);
end
$$;

comment on function penstock_payments.within_bounds(uuid[]) is
    'Those of the payments that their rail''s bound leaves room for.';
revoke all on function penstock_payments.within_bounds(uuid[]) from public;
