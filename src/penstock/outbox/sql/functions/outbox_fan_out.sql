create or replace function app.outbox_fan_out(p_seqs bigint[]) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
    v_hashes bigint[];
    v_heads bigint[];
    v_none bigint[];
begin
    insert into public.outbox
        (tenant_id, topic, payload, headers, created_at, ordering_key, route, event_id, event_topic,
         parent, relay)
    select o.tenant_id, f.route, o.payload, o.headers, o.created_at, o.ordering_key, f.route, o.id,
           o.topic, o.seq, o.relay
    from public.outbox o
    cross join lateral app.outbox_routes_of(o.topic, o.payload) f
    where o.seq = any (p_seqs)
    order by o.seq, f.route;
    with fanned as (
        update public.outbox o
        set pos = null, fanned_at = penstock.clock(),
            parked_at = case when o.key_hash is not null then penstock.clock() end,
            open_deliveries = (select count(*) from public.outbox d where d.parent = o.seq)
        where o.seq = any (p_seqs)
        returning o.seq, o.key_hash, o.open_deliveries
    )
    select array_agg(f.key_hash) filter (where f.key_hash is not null),
           array_agg(f.seq) filter (where f.key_hash is not null),
           array_agg(f.seq) filter (where f.open_deliveries = 0)
    into v_hashes, v_heads, v_none
    from fanned f;
    -- The caller counted the routes a moment ago; a route that went since leaves nobody who would
    -- end the event.
    if v_none is not null then
        perform app.outbox_archive_rows(v_none, null, 'NO_ROUTE');
    end if;
    if v_hashes is not null then
        perform app.outbox_promote(v_hashes, v_heads);
    end if;
end
$$;

comment on function app.outbox_fan_out(bigint[]) is
    'Write one delivery per route of each event, and let the next of its key follow.';
revoke all on function app.outbox_fan_out(bigint[]) from public;
