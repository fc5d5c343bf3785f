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
    v_wm bigint := pg_sequence_last_value('penstock.outbox_wm');
    v_joint int8multirange := app.outbox_joint();
    v_idle uuid[] := app.outbox_paused_tenants();
    v_limit integer;
    v_fits boolean;
    v_last bigint;
    v_seqs int8multirange;
begin
    -- One first: where events of other kinds wait, most claims end there.
    foreach v_limit in array array[1, p_limit] loop
        select coalesce(bool_and(x.fits), true), max(x.pos),
               coalesce(range_agg(int8range(x.seq, x.seq, '[]')), '{}')
        into v_fits, v_last, v_seqs
        from (select o.seq, o.pos,
                     (p_topics is null or o.topic = any (p_topics))
                     and o.topic <> all (p_skip) and o.topic not like 'penstock.%'
                     and num_nonnulls(o.route, o.relay) = 0 and o.bytes <= c_bytes_max
                     and coalesce(o.tenant_id <> all (v_idle), true) as fits
              from (select r.*, sum(200 + pg_column_size(r.headers)
                                    + case when pg_column_compression(r.payload) is null
                                           then pg_column_size(r.payload)
                                           else octet_length(r.payload::text) end)
                                over (order by r.pos) as bytes
                    from (select r.* from public.outbox r
                          where r.pos > v_wm and not v_joint @> r.seq
                          order by r.pos limit v_limit) r) o
              where o.bytes <= c_bytes_max or v_limit = 1) x;
        if not v_fits or v_last is null then
            return case when v_fits then v_seqs end;
        end if;
    end loop;
    insert into public.outbox_joint_leases (token, owner, seqs, upto, expires_at)
    select p_token, p_owner, v_seqs, v_last, penstock.clock() + make_interval(secs => c.lease_s)
    from penstock.queue_config c where c.queue = 'outbox';
    -- Not undone if this transaction is, which costs old snapshots a little time.
    perform setval('penstock.outbox_joint_xid', pg_current_xact_id()::text::bigint);
    if v_last > pg_sequence_last_value('penstock.outbox_taken') then
        perform setval('penstock.outbox_taken', v_last);
    end if;
    return v_seqs;
end
$$;

comment on function app.outbox_join(integer, uuid, uuid, text[], text[]) is
    'Take the next ready events under one lease; null where they cannot be taken that way.';
revoke all on function app.outbox_join(integer, uuid, uuid, text[], text[]) from public;
