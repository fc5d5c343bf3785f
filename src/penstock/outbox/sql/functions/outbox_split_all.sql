create or replace function app.outbox_split_all(p_token uuid) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
    v_seqs bigint[] := array(
        select o.seq from public.outbox_joint_leases j
        cross join unnest(j.seqs) as r (run)
        join public.outbox o on o.seq >= lower(r.run) and o.seq < upper(r.run)
        where j.token = p_token);
begin
    perform app.outbox_split(v_seqs, array_fill(p_token, array[cardinality(v_seqs)]));
end
$$;

comment on function app.outbox_split_all(uuid) is
    'Give every event under a joint lease a lease of its own, for clients that go by token.';
revoke all on function app.outbox_split_all(uuid) from public;
