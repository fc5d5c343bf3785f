-- 410 Gone: the receiver asks not to be called again. Its deliveries wait; an operator enables it or
-- takes its routes away. An answer to a call that was made before the destination was last changed
-- says nothing of what it is now.
create or replace function app.outbox_gone(
    p_destination text, p_why text, p_version bigint
) returns uuid
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    update public.outbox_destinations d
    set enabled = false, last_error = left(p_why, 60), last_error_at = penstock.clock()
    where d.name = p_destination and d.enabled and d.kind <> 'python'
      and d.version = p_version;
    if not found then
        return null;
    end if;
    return audit.record('disable', 'public.outbox_destinations',
        jsonb_build_object('name', p_destination, 'enabled', false),
        'the receiver says that it is gone: ' || p_why);
end
$$;

comment on function app.outbox_gone(text, text, bigint) is
    'Disable a destination that says it is gone; audited. Null when it was disabled or changed before.';
revoke all on function app.outbox_gone(text, text, bigint) from public;
grant execute on function app.outbox_gone(text, text, bigint) to penstock_outbox_executor;
