create or replace function app.outbox_fault(p_destinations text[], p_faults text[]) returns void
language sql security definer
set search_path = pg_catalog, pg_temp
as $$
    update public.outbox_destinations d
    set fault = left(f.fault, 500),
        fault_at = case when f.fault is not null then penstock.clock() end
    from unnest(p_destinations, p_faults) as f (name, fault)
    where d.name = f.name and d.kind <> 'python'
      and (f.fault is not null or d.fault is not null)
$$;

comment on function app.outbox_fault(text[], text[]) is
    'Say why a worker cannot use destinations as configured, or (null) that it now can.';
revoke all on function app.outbox_fault(text[], text[]) from public;
grant execute on function app.outbox_fault(text[], text[]) to penstock_outbox_executor;
