-- The quick way out of the hot table: events by runs of their numbers, from one to another. Whoever has
-- lost an event does not find it: what was taken back has a higher position, or none. The book-keeping
-- is left to the reaper where a handler's own transaction finishes (p_leave is false): it would make all
-- events of a claim wait for each other.
create or replace function app.outbox_archive_joint(
    p_tokens uuid[], p_from bigint[], p_upto bigint[], p_leave boolean
) returns integer
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
    v_lease record;
    v_token uuid;
    v_upto bigint;
    v_seqs bigint[];
    v_count integer;
    v_total integer := 0;
    v_hashes bigint[];
    v_heads bigint[];
begin
    -- In the order of tokens, because leases are extended at the same time.
    for v_lease in
        select j.token, j.upto, j.seqs * f.runs as mine
        from (select u.token, range_agg(int8range(u.first, u.last, '[]')) as runs
              from unnest(p_tokens, p_from, p_upto) as u (token, first, last)
              group by u.token) f
        join public.outbox_joint_leases j on j.token = f.token
        order by j.token
    loop
        v_token := v_lease.token; v_upto := v_lease.upto;
        v_seqs := array(
            select generate_series(lower(r.run), upper(r.run) - 1)
            from unnest(v_lease.mine) as r (run));
        with gone as (
            delete from public.outbox o
            where o.seq = any (v_seqs) and coalesce(o.pos <= v_upto, false)
            returning o.seq, o.id, o.tenant_id, o.topic, o.payload, o.headers, o.created_at,
                      o.ordering_key, o.lease_epoch, o.total_attempts, o.replay_count, o.key_hash
        ), kept as (
            insert into public.outbox_archive
                (seq, id, tenant_id, topic, payload, headers, created_at, ordering_key, lease_token,
                 lease_epoch, total_attempts, replay_count, state, delivered_at)
            select g.seq, g.id, g.tenant_id, g.topic, g.payload, g.headers, g.created_at,
                   g.ordering_key, v_token, g.lease_epoch + 1, g.total_attempts + 1,
                   g.replay_count, 'DELIVERED', penstock.clock()
            from gone g
        )
        select count(*), array_agg(g.key_hash) filter (where g.key_hash is not null),
               array_agg(g.seq) filter (where g.key_hash is not null)
        into v_count, v_hashes, v_heads
        from gone g;
        v_total := v_total + v_count;
        if v_hashes is not null then
            perform app.outbox_promote(v_hashes, v_heads);
        end if;
        if p_leave and v_count > 0 then
            perform app.outbox_leave_joint(v_token, v_lease.mine);
        end if;
    end loop;
    return v_total;
end
$$;

comment on function app.outbox_archive_joint(uuid[], bigint[], bigint[], boolean) is
    'Move delivered events to the archive that are under joint leases; returns how many.';
revoke all on function app.outbox_archive_joint(uuid[], bigint[], bigint[], boolean) from public;
