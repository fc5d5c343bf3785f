-- `is not distinct from` keeps the planner on the key: by the token's index, each row would read all
-- rows of its claim. `= any` keeps it there too, if the table was nearly empty when this was planned.
create or replace function app.outbox_release(p_seqs bigint[], p_tokens uuid[]) returns integer
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
    v_count integer;
begin
    perform app.outbox_split(p_seqs, p_tokens);
    with back as (
        update public.outbox o
        set pos = nextval('penstock.outbox_next'),
            processing_token = null, lease_owner = null, lease_expires_at = null,
            attempts = o.attempts - 1
        from unnest(p_seqs, p_tokens) as f (seq, token)
        where o.seq = f.seq and o.seq = any (p_seqs) and f.token is not null
          and o.processing_token is not distinct from f.token
        returning o.seq, o.id, f.token, o.lease_epoch
    )
    insert into public.outbox_attempts (seq, event_id, lease_token, lease_epoch, outcome)
    select b.seq, b.id, b.token, b.lease_epoch, 'RELEASED' from back b;
    get diagnostics v_count = row_count;
    return v_count;
end
$$;

comment on function app.outbox_release(bigint[], uuid[]) is
    'Give events back that have not started; the attempt does not count.';
revoke all on function app.outbox_release(bigint[], uuid[]) from public;
grant execute on function app.outbox_release(bigint[], uuid[]) to penstock_outbox_executor;
