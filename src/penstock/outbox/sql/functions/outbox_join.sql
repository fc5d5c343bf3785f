-- One event of another kind among those that wait, and the claim is an ordinary one: so a claim is of
-- one kind, and each kind is quick.
create or replace function app.outbox_join(
    p_limit integer, p_token uuid, p_owner uuid, p_topics text[], p_skip text[]
) returns int8multirange
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_bitmapscan = off
as $$
declare
    -- The locks of a joint claim are held until its answer is sent, so it has to fit into what the
    -- system takes off a server whose client does not read.
    c_bytes_max constant integer := 131072;
    c_bytes_each constant integer := 128;
    v_wm bigint := pg_sequence_last_value('penstock.outbox_wm');
    v_joint int8multirange := app.outbox_joint();
    v_idle uuid[] := app.outbox_paused_tenants();
    v_limit integer := least(p_limit, 10);
    v_grown boolean := false;
    v_next record;
    v_seqs int8multirange;
begin
    -- A few first: where events of other kinds wait, most claims end there. Then as many as are wanted,
    -- or as fit together if they are all of that size, and fewer where they are not.
    loop
        select bool_and(x.fits) as fit, sum(x.bytes) as bytes, count(*) as count,
               max(x.pos) as last, array_agg(x.seq) as seqs, min(x.seq) as lowest,
               max(x.seq) as highest
        into v_next
        from (select o.seq, o.pos,
                     (p_topics is null or o.topic = any (p_topics))
                     and o.topic <> all (p_skip) and o.topic not like 'penstock.%'
                     and num_nonnulls(o.route, o.relay) = 0
                     and coalesce(o.tenant_id <> all (v_idle), true) as fits,
                     -- As text, as it is sent: a short number may be long there.
                     c_bytes_each + octet_length(o.topic)
                     + coalesce(octet_length(o.ordering_key), 0)
                     + octet_length(o.headers::text) + octet_length(o.payload::text) as bytes
              from public.outbox o
              where o.pos > v_wm and not v_joint @> o.seq
              order by o.pos limit v_limit) x;
        if v_next.count = 0 then
            return '{}';
        elsif not v_next.fit or (v_limit = 1 and v_next.bytes > c_bytes_max) then
            return null;
        end if;
        exit when v_next.bytes <= c_bytes_max
            and (v_grown or v_next.count < v_limit or v_limit = p_limit);
        v_grown := true;
        v_limit := least(p_limit, greatest(
            v_next.count * c_bytes_max / v_next.bytes,
            case when v_next.bytes <= c_bytes_max then v_next.count else 1 end));
    end loop;
    v_seqs := case
        when v_next.highest - v_next.lowest < v_next.count
        then int8multirange(int8range(v_next.lowest, v_next.highest, '[]'))
        else (select range_agg(int8range(s, s, '[]')) from unnest(v_next.seqs) as s) end;
    insert into public.outbox_joint_leases (token, owner, seqs, upto, expires_at)
    select p_token, p_owner, v_seqs, v_next.last,
           penstock.clock() + make_interval(secs => c.lease_s)
    from penstock.queue_config c where c.queue = 'outbox';
    -- Not undone if this transaction is, which costs old snapshots a little time.
    perform setval('penstock.outbox_joint_xid', pg_current_xact_id()::text::bigint);
    if v_next.last > pg_sequence_last_value('penstock.outbox_taken') then
        perform setval('penstock.outbox_taken', v_next.last);
    end if;
    return v_seqs;
end
$$;

comment on function app.outbox_join(integer, uuid, uuid, text[], text[]) is
    'Take the next ready events under one lease; null where they cannot be taken that way.';
revoke all on function app.outbox_join(integer, uuid, uuid, text[], text[]) from public;
