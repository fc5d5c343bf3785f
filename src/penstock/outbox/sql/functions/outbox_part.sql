-- Whoever extends says what is still wanted: that goes on under leases of its own, and what is left of the
-- joint lease ends in its time. So nothing that was given up is kept from others, and no joint lease
-- lives for long, which would hold down the floor that all claims read from. Joint leases are locked
-- in the order of their tokens, as they are left. What somebody holds right now is being
-- finished, or not: until that is known it stays under the joint lease, which is prolonged for it.
create or replace function app.outbox_part(p_seqs bigint[], p_tokens uuid[], p_until timestamptz)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
    v_joint uuid[] := array(
        select j.token from public.outbox_joint_leases j
        where j.token in (select t from unnest(p_tokens) as t)
        order by j.token for no key update);
    v_seqs bigint[];
    v_tokens uuid[];
begin
    if cardinality(v_joint) = 0 then
        return;
    end if;
    select array_agg(x.seq), array_agg(x.token) into v_seqs, v_tokens
    from (select o.seq, j.token
          from unnest(p_seqs, p_tokens) as f (seq, token)
          join public.outbox_joint_leases j on j.token = f.token and j.seqs @> f.seq
          join public.outbox o on o.seq = f.seq and coalesce(o.pos <= j.upto, false)
          where o.seq = any (p_seqs)
          for update of o skip locked) x;
    perform app.outbox_split(v_seqs, v_tokens);
    update public.outbox_joint_leases j set expires_at = p_until
    where j.token = any (v_joint) and exists (
        select from unnest(p_seqs, p_tokens) as f (seq, token)
        join public.outbox o on o.seq = f.seq
        where o.seq = any (p_seqs) and f.token = j.token and j.seqs @> f.seq
          and coalesce(o.pos <= j.upto, false));
end
$$;

comment on function app.outbox_part(bigint[], uuid[], timestamptz) is
    'Let events that are still wanted out of joint leases, each with a lease of its own.';
revoke all on function app.outbox_part(bigint[], uuid[], timestamptz) from public;
