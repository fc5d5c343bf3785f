-- What does not simply end well goes on as a lease of its own row: then everything is as after an
-- ordinary claim.
create or replace function app.outbox_split(p_seqs bigint[], p_tokens uuid[]) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
begin
    if not exists (
        select from public.outbox_joint_leases j
        where j.token in (select t from unnest(p_tokens) as t)) then
        return;
    end if;
    update public.outbox o
    set pos = null, processing_token = j.token, lease_owner = j.owner,
        lease_expires_at = j.expires_at, lease_epoch = o.lease_epoch + 1,
        attempts = o.attempts + 1, total_attempts = o.total_attempts + 1
    from unnest(p_seqs, p_tokens) as f (seq, token)
    join public.outbox_joint_leases j on j.token = f.token and j.seqs @> f.seq
    -- By the key alone, however small the table was when this was planned: never by position, and
    -- never all of it.
    where o.seq = f.seq and o.seq = any (p_seqs) and coalesce(o.pos <= j.upto, false);
    -- Each token takes its own events out, no other's; and in the order of tokens, because leases are
    -- extended at the same time.
    perform app.outbox_leave_joint(f.token, f.seqs)
    from (select u.token, range_agg(int8range(u.seq, u.seq, '[]')) as seqs
          from unnest(p_seqs, p_tokens) as u (seq, token)
          where u.token is not null
          group by u.token order by u.token) f;
end
$$;

comment on function app.outbox_split(bigint[], uuid[]) is
    'Give events under a joint lease a lease of their own, of the same token.';
revoke all on function app.outbox_split(bigint[], uuid[]) from public;
