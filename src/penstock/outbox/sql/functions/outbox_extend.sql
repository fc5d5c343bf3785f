-- `is not distinct from` keeps the planner on the key: by the token's index, each row would read all
-- rows of its claim. `= any` keeps it there too, if the table was nearly empty when this was planned.
create or replace function app.outbox_extend(p_seqs bigint[], p_tokens uuid[])
returns table (seq bigint)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
    v_until timestamptz := penstock.clock() + make_interval(
        secs => (select c.lease_s from penstock.queue_config c where c.queue = 'outbox'));
begin
    perform app.outbox_part(p_seqs, p_tokens, v_until);
    return query
        with held as (
            update public.outbox o
            set lease_expires_at = v_until
            from unnest(p_seqs, p_tokens) as f (seq, token)
            where o.seq = f.seq and o.seq = any (p_seqs) and f.token is not null
              and o.processing_token is not distinct from f.token
            returning o.seq
        )
        select f.seq from unnest(p_seqs, p_tokens) as f (seq, token)
        where not exists (select from held h where h.seq = f.seq)
          and not exists (select from public.outbox_joint_leases j
                          where j.token = f.token and j.seqs @> f.seq);
end
$$;

comment on function app.outbox_extend(bigint[], uuid[]) is
    'Prolong leases still held; returns the events that are lost.';
revoke all on function app.outbox_extend(bigint[], uuid[]) from public;
grant execute on function app.outbox_extend(bigint[], uuid[]) to penstock_outbox_executor;
