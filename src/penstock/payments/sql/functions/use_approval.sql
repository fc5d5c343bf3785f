-- Four eyes, if the policy asks for them: another login must have approved within a day. The login is
-- the server's, not a name that the caller gives.
create or replace function penstock_payments.use_approval(p_outbox_id uuid) returns text
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    v_by text;
begin
    if not (select p.second_approver from penstock_payments.policy p) then
        return null;
    end if;
    update penstock_payments.approvals a
    set used_at = penstock.clock()
    where a.id = (
        select o.id from penstock_payments.approvals o
        where o.outbox_id = p_outbox_id and o.used_at is null and o.approved_by <> session_user
          and o.approved_at > penstock.clock() - interval '1 day'
        order by o.approved_at limit 1 for update)
    returning a.approved_by into v_by;
    if v_by is null then
        raise exception using errcode = 'PN507',
            message = format('payment %s needs the approval of a second person', p_outbox_id),
            hint    = 'another login runs penstock payments approve, or calls approve_payment; '
                      'that is good once, for a day';
    end if;
    return v_by;
end
$$;

comment on function penstock_payments.use_approval(uuid) is
    'Consume a second person''s approval; returns who gave it, null if none is needed.';
revoke all on function penstock_payments.use_approval(uuid) from public;
