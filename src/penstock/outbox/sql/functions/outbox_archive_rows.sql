-- The one way out of the hot table: rows whose token matches move to the archive in a single
-- statement. Only what was delivered has tokens; what is cancelled or discarded has no lease, nor has
-- an event that was FANNED out to deliveries, all of which have ended.
create or replace function app.outbox_archive_rows(
    p_seqs bigint[], p_tokens uuid[], p_state text
) returns integer
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
    v_count integer;
    v_hashes bigint[];
    v_heads bigint[];
    v_parents bigint[];
begin
    if p_tokens is null and p_state <> 'DELIVERED' then
        p_tokens := array_fill(null::uuid, array[cardinality(p_seqs)]);
    elsif cardinality(p_tokens) is distinct from cardinality(p_seqs)
          or array_position(p_tokens, null) is not null then
        raise exception using
            errcode = 'PN201',
            message = 'every row to finish needs the token of its claim';
    end if;
    with gone as (
        delete from public.outbox o
        using unnest(p_seqs, p_tokens) as f (seq, token)
        where o.seq = f.seq and o.seq = any (p_seqs)  -- see outbox_extend
          and o.processing_token is not distinct from f.token
        returning o.*
    ), kept as (
        insert into public.outbox_archive
            (seq, id, tenant_id, topic, payload, headers, created_at, ordering_key, lease_token,
             lease_epoch, total_attempts, replay_count, state, delivered_at, route, event_id,
             event_topic)
        select g.seq, g.id, g.tenant_id, g.topic, g.payload, g.headers, g.created_at,
               g.ordering_key, g.processing_token, g.lease_epoch, g.total_attempts,
               g.replay_count, case p_state when 'FANNED' then 'DELIVERED' else p_state end,
               penstock.clock(), g.route, g.event_id, g.event_topic
        from gone g
    )
    select count(*),
           array_agg(g.key_hash) filter (where g.key_hash is not null and g.turn is null
                                           and g.parked_at is null),
           array_agg(g.seq) filter (where g.key_hash is not null and g.turn is null
                                      and g.parked_at is null),
           array_agg(g.parent) filter (where g.parent is not null)
    into v_count, v_hashes, v_heads, v_parents
    from gone g;
    if v_hashes is not null then
        perform app.outbox_promote(v_hashes, v_heads);
    end if;
    if v_parents is not null then
        perform app.outbox_fold(v_parents);
    end if;
    return v_count;
end
$$;

comment on function app.outbox_archive_rows(bigint[], uuid[], text) is
    'Move rows to the archive where the token still matches; returns how many.';
revoke all on function app.outbox_archive_rows(bigint[], uuid[], text) from public;
