-- After a failover or a restore the engine may have forgotten what the ledger confirmed. The ledger
-- is right: each ticket's slot becomes its owner's. Run it with intake paused, before claims and
-- the reaper, over all tickets in pages.
create or replace function public.intake_reconcile(p_tickets jsonb)
returns table (resource_id uuid, outcome text)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    v_ticket record;
begin
    if jsonb_typeof(p_tickets) is distinct from 'array' then
        raise exception using errcode = '22023', message = 'tickets are a JSON array';
    end if;
    for v_ticket in
        select t.* from jsonb_to_recordset(p_tickets) as t (resource_id uuid, pool_id text,
            user_id text, reservation_id uuid, confirmed_at timestamptz)
        order by t.pool_id collate "C", t.resource_id
    loop
        resource_id := v_ticket.resource_id;
        outcome := penstock_intake.reconcile_one(v_ticket.resource_id, v_ticket.pool_id,
            v_ticket.user_id, v_ticket.reservation_id, v_ticket.confirmed_at);
        return next;
    end loop;
end
$$;

comment on function public.intake_reconcile(jsonb) is
    'Correct slots from confirmed tickets. Outcome per ticket: agreed, consumed, restored (the '
    'slot was missing), corrected (another reservation held it) or retired (needs a person).';
revoke all on function public.intake_reconcile(jsonb) from public;
grant execute on function public.intake_reconcile(jsonb)
    to penstock_intake_executor, penstock_operator;
