-- Lock order: the key's lock, joint claims, then its head. An operator may wait for a producer, not for ever.
create or replace function app.outbox_take_heads(p_keys text[], p_tenant uuid, p_route text)
returns table (seq bigint, id uuid, key_hash bigint, ordering_key text)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '5s'
as $$
#variable_conflict use_column
begin
    if cardinality(p_keys) > 1000 then
        raise exception using errcode = 'PN005', message = 'at most 1000 keys in one call';
    end if;
    perform pg_advisory_xact_lock(k.key_hash)
    from (select distinct app.outbox_key_hash(p_tenant, k, p_route) as key_hash
          from unnest(p_keys) as k order by 1) k;
    perform app.outbox_enter_rows();
    return query
        select o.seq, o.id, o.key_hash, o.ordering_key
        from public.outbox o
        where o.key_hash in (
                select app.outbox_key_hash(p_tenant, k, p_route) from unnest(p_keys) as k)
          and o.turn is null and o.parked_at is null and o.processing_token is null
          and not app.outbox_is_joint(o.seq, o.pos)
        order by o.seq
        for update skip locked;
end
$$;

comment on function app.outbox_take_heads(text[], uuid, text) is
    'Lock keys and those of their heads that are not in flight.';
revoke all on function app.outbox_take_heads(text[], uuid, text) from public;
