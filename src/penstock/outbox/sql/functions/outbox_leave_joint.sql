-- Only book-keeping: who owns an event is decided by its row. Each token takes its own events out, no
-- other's; and in the order of tokens, because leases are extended at the same time.
create or replace function app.outbox_leave_joint(p_seqs bigint[], p_tokens uuid[]) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
    v_left record;
begin
    for v_left in
        select f.token, range_agg(int8range(f.seq, f.seq, '[]')) as seqs
        from unnest(p_seqs, p_tokens) as f (seq, token)
        where f.token is not null
        group by f.token order by f.token
    loop
        delete from public.outbox_joint_leases j
        where j.token = v_left.token and j.seqs <@ v_left.seqs;
        if not found then
            update public.outbox_joint_leases j set seqs = j.seqs - v_left.seqs
            where j.token = v_left.token;
            delete from public.outbox_joint_leases j
            where j.token = v_left.token and isempty(j.seqs);
        end if;
    end loop;
end
$$;

comment on function app.outbox_leave_joint(bigint[], uuid[]) is
    'Take events out of the joint leases of their tokens.';
revoke all on function app.outbox_leave_joint(bigint[], uuid[]) from public;
