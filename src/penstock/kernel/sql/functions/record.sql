-- Called by the functions that act, in the operator's own transaction: no action without its row.
-- Nobody may call it alone, so there is no row without its action either.
create or replace function audit.record(
    p_operation  text,
    p_table_name text,
    p_row_data   jsonb,
    p_reason     text,
    p_operator   text default null
) returns uuid
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_id uuid := penstock.uuidv7();
begin
    if coalesce(trim(p_reason), '') = '' then
        raise exception using errcode = 'PN205', message = 'this action needs a reason';
    end if;
    insert into audit.audit_logs (id, operation, table_name, row_data, reason, operator)
    values (v_id, p_operation, p_table_name, coalesce(p_row_data, '{}'), p_reason, p_operator);
    return v_id;
end
$$;

comment on function audit.record(text, text, jsonb, text, text) is
    'Write one audit row in the caller''s transaction and return its id.';
revoke all on function audit.record(text, text, jsonb, text, text) from public;
