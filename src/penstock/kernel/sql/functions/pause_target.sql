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
    -- A pause that no claim reads would be a false comfort.
    if not exists (
        select from penstock.queue q
        where q.queue = p_target
           or (p_target like '%/_%' and split_part(p_target, '/', 1) = any (q.kinds))
    ) then
        raise exception using
            errcode = 'PN005',
            message = format('%L is not a target here', p_target),
            hint    = (select 'targets: ' || coalesce(string_agg(t.target, ', ' order by t.target),
                                                  'none, no queue is installed')
                       from (select q.queue as target from penstock.queue q
                             union all
                             select k.kind || '/NAME' from penstock.queue q, unnest(q.kinds) as k (kind)
                            ) t);
    end if;
    if p_target like 'tenant/%'
       and p_target !~* '^tenant/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' then
        raise exception using
            errcode = 'PN005',
            message = format('%L names no tenant', p_target),
            hint    = 'a tenant is named by its UUID, as in the tenant column: tenant/UUID';
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
