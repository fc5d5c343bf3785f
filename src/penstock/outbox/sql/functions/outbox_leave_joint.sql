-- Only book-keeping: who owns an event is decided by its row.
create or replace function app.outbox_leave_joint(p_token uuid, p_seqs int8multirange) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
begin
    delete from public.outbox_joint_leases j where j.token = p_token and j.seqs <@ p_seqs;
    if not found then
        update public.outbox_joint_leases j set seqs = j.seqs - p_seqs where j.token = p_token;
        delete from public.outbox_joint_leases j where j.token = p_token and isempty(j.seqs);
    end if;
end
$$;

comment on function app.outbox_leave_joint(uuid, int8multirange) is
    'Take events out of a joint lease, and the lease away with the last.';
revoke all on function app.outbox_leave_joint(uuid, int8multirange) from public;
