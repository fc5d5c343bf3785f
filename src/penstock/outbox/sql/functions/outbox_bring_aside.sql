-- A suspect only gets its time back: outbox_bring_suspect lets them run, one of a route after the other.
create or replace function app.outbox_bring_aside(p_tids tid[]) returns integer
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    update public.outbox o
    set pos = case when o.error_code is distinct from 'ZOMBIE_SUSPECT'
                   then nextval('penstock.outbox_next') end,
        next_attempt_at = case when o.error_code = 'ZOMBIE_SUSPECT' then penstock.clock() end
    where o.ctid = any (p_tids);
    return cardinality(p_tids);
end
$$;

comment on function app.outbox_bring_aside(tid[]) is
    'Make deliveries ready again that were set aside and are locked by the caller.';
revoke all on function app.outbox_bring_aside(tid[]) from public;
