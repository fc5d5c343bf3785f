create or replace function app.outbox_cancel(p_id uuid, p_reason text) returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_seq bigint;
    v_tenant uuid;
begin
    -- Lock order: the key's lock, joint claims, then the row.
    perform pg_advisory_xact_lock(o.key_hash) from public.outbox o
    where o.id = p_id and o.key_hash is not null;
    v_tenant := app.own_tenant(null);
    perform app.outbox_enter_rows();
    select o.seq into v_seq from public.outbox o
    where o.id = p_id and (v_tenant is null or o.tenant_id = v_tenant)
      and (o.pos is not null or o.next_attempt_at is not null or o.turn is not null)
      and not app.outbox_is_joint(o.seq, o.pos)
    for update skip locked;
    if not found then
        return false;
    end if;
    perform app.outbox_archive_rows(array[v_seq], null, 'CANCELLED');
    perform audit.record('cancel', 'public.outbox', jsonb_build_object('id', p_id), p_reason);
    return true;
end
$$;

comment on function app.outbox_cancel(uuid, text) is
    'Withdraw an event that is not in flight; false if it is, or is gone.';
revoke all on function app.outbox_cancel(uuid, text) from public;
grant execute on function app.outbox_cancel(uuid, text) to penstock_outbox_ingest, penstock_operator;
