-- What is gone has been finished, by a transaction of the handler's. What somebody holds right now is
-- being finished so, or not: it stays under the joint lease until that is known.
create or replace function app.outbox_split_expired(p_floor timestamptz, p_now timestamptz)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_bitmapscan = off
as $$
declare
    v_lease public.outbox_joint_leases;
    v_there bigint[];
    v_free bigint[];
    v_left int8multirange;
begin
    delete from public.outbox_joint_leases j
    where j.token = any (array(
        select e.token from public.outbox_joint_leases e
        where e.expires_at > p_floor and e.expires_at <= p_now
          and not exists (
                select from unnest(e.seqs) as r (run)
                join public.outbox o on o.seq >= lower(r.run) and o.seq < upper(r.run)
                where coalesce(o.pos <= e.upto, false))
        order by e.expires_at limit 1000
        for update skip locked));
    for v_lease in
        select j.* from public.outbox_joint_leases j
        where j.expires_at > p_floor and j.expires_at <= p_now
        order by j.expires_at limit 10
        for update skip locked
    loop
        v_there := array(
            select o.seq from unnest(v_lease.seqs) as r (run)
            join public.outbox o on o.seq >= lower(r.run) and o.seq < upper(r.run)
            where coalesce(o.pos <= v_lease.upto, false));
        v_free := array(
            select o.seq from public.outbox o
            where o.seq = any (v_there) and coalesce(o.pos <= v_lease.upto, false)
            for update skip locked);
        perform app.outbox_split(v_free, array_fill(v_lease.token, array[cardinality(v_free)]));
        select range_agg(int8range(h.seq, h.seq, '[]')) into v_left
        from (select unnest(v_there) except select unnest(v_free)) as h (seq);
        if v_left is null then
            delete from public.outbox_joint_leases j where j.token = v_lease.token;
        else
            update public.outbox_joint_leases j set seqs = v_left where j.token = v_lease.token;
        end if;
    end loop;
end
$$;

comment on function app.outbox_split_expired(timestamptz, timestamptz) is
    'Give the events of joint leases that have ended leases of their own, which have ended as well.';
revoke all on function app.outbox_split_expired(timestamptz, timestamptz) from public;
