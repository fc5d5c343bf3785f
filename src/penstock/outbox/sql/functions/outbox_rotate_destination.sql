create or replace function app.outbox_rotate_destination(
    p_name text, p_reference text, p_reason text, p_operator text default null
) returns uuid
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_refs text[];
begin
    perform app.outbox_check_references(array[p_reference]);
    update public.outbox_destinations d
    set version = d.version + 1, secret_refs = case when p_reference is null then d.secret_refs[1:1]
        else array[p_reference] || array_remove(d.secret_refs, p_reference) end
    where d.name = p_name and d.kind <> 'python'
    returning d.secret_refs into v_refs;
    if not found then
        raise exception using
            errcode = 'PN011', message = format('there is no destination %L', p_name);
    end if;
    if cardinality(v_refs) > 4 then
        raise exception using
            errcode = 'PN005', message = 'more than four secrets would be live',
            hint = 'end the old ones first: finish the rotation';
    end if;
    return audit.record('rotate', 'public.outbox_destinations',
        jsonb_build_object('name', p_name, 'secret_refs', v_refs), p_reason, p_operator);
end
$$;

comment on function app.outbox_rotate_destination(text, text, text, text) is
    'Put a reference to a new secret first, or (null) end all but the first; audited.';
revoke all on function app.outbox_rotate_destination(text, text, text, text) from public;
grant execute on function app.outbox_rotate_destination(text, text, text, text) to penstock_control;
