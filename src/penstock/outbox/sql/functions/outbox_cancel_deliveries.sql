-- From the end of each line, so that its head is not followed by one that goes too.
create or replace function app.outbox_cancel_deliveries(p_route text, p_seqs bigint[])
returns table (cancelled integer, first_held bigint)
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
    v_seqs bigint[] := array(
        select o.seq from public.outbox o
        where o.seq = any (p_seqs) and o.route = p_route
        order by o.turn desc nulls last, o.seq
        for update skip locked);
begin
    with leased as (
        select o.seq, o.processing_token as token from public.outbox o
        where o.seq = any (v_seqs) and o.processing_token is not null
    ), cut as (
        update public.outbox o
        set processing_token = null, lease_owner = null, lease_expires_at = null,
            next_attempt_at = penstock.clock()
        from leased l
        where o.seq = l.seq
        returning o.seq, o.id, l.token, o.lease_epoch
    )
    insert into public.outbox_attempts
        (seq, event_id, lease_token, lease_epoch, outcome, error_code)
    select c.seq, c.id, c.token, c.lease_epoch, 'RELEASED', 'ROUTE_REMOVED' from cut c;
    cancelled := 0;
    if cardinality(v_seqs) > 0 then
        cancelled := app.outbox_archive_rows(v_seqs, null, 'CANCELLED');
    end if;
    first_held := (select min(o.seq) from public.outbox o
                   where o.seq = any (p_seqs) and o.route = p_route);
    return next;
end
$$;

comment on function app.outbox_cancel_deliveries(text, bigint[]) is
    'Cancel deliveries of a route, in flight or not; how many, and the first that somebody holds.';
revoke all on function app.outbox_cancel_deliveries(text, bigint[]) from public;
