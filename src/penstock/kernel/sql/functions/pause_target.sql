create or replace function penstock.pause_target(
    p_target   text,
    p_reason   text,
    p_for      interval default null,
    p_operator text default null
) returns uuid
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_until timestamptz := penstock.clock() + p_for;
begin
    if p_target !~ '^[a-z_]+(/.+)?$' then
        raise exception using
            errcode = 'PN005',
            message = format('%L is not a target', p_target),
            hint    = 'use a queue (outbox) or a part of one (topic/orders.paid, pool/x)';
    end if;
    insert into penstock.pause as p (target, reason, paused_by, until_at)
    values (p_target, p_reason, coalesce(p_operator, session_user), v_until)
    on conflict (target) do update
        set reason = excluded.reason, paused_by = excluded.paused_by,
            paused_at = penstock.clock(), until_at = excluded.until_at;
    return audit.record('pause', 'penstock.pause',
        jsonb_build_object('target', p_target, 'until_at', v_until), p_reason, p_operator);
end
$$;

comment on function penstock.pause_target(text, text, interval, text) is
    'Stop claims on a queue or a part of it, for a while or until resumed; audited.';
revoke all on function penstock.pause_target(text, text, interval, text) from public;
grant execute on function penstock.pause_target(text, text, interval, text) to penstock_operator;
