-- The quick way out of the hot table. Whoever has lost an event does not find it: what was taken back
-- has a higher position, or none. The book-keeping is left to the reaper where a handler's own
-- transaction finishes (p_leave is false): it would make all events of a claim wait for each other.
create or replace function app.outbox_archive_joint(
    p_seqs bigint[], p_tokens uuid[], p_leave boolean
) returns integer
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
    v_lease record;
    v_count integer;
    v_total integer := 0;
    v_hashes bigint[];
    v_heads bigint[];
begin
    for v_lease in
        select j.token, j.seqs, j.upto, f.mine
        from (select u.token, array_agg(u.seq) as mine
              from unnest(p_seqs, p_tokens) as u (seq, token) group by u.token) f
        join public.outbox_joint_leases j on j.token = f.token
    loop
        with gone as (
            delete from public.outbox o
            where o.seq = any (v_lease.mine) and v_lease.seqs @> o.seq and o.pos <= v_lease.upto
            returning o.*
        ), kept as (
            insert into public.outbox_archive
                (seq, id, tenant_id, topic, payload, headers, created_at, ordering_key, lease_token,
                 lease_epoch, total_attempts, replay_count, state, delivered_at)
            select g.seq, g.id, g.tenant_id, g.topic, g.payload, g.headers, g.created_at,
                   g.ordering_key, v_lease.token, g.lease_epoch + 1, g.total_attempts + 1,
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
    end loop;
    if p_leave and v_total > 0 then
        perform app.outbox_leave_joint(p_seqs, p_tokens);
    end if;
    return v_total;
end
$$;

comment on function app.outbox_archive_joint(bigint[], uuid[], boolean) is
    'Move delivered events to the archive that are under joint leases; returns how many.';
revoke all on function app.outbox_archive_joint(bigint[], uuid[], boolean) from public;
