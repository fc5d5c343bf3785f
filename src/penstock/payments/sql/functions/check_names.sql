-- A switch that is spelt wrongly would stay off, and whoever set it would rely on it.
create or replace function penstock_payments.check_names(p_values jsonb, p_known jsonb)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    v_unknown text;
begin
    if jsonb_typeof(p_values) is distinct from 'object' then
        raise exception using errcode = 'PN005', message = 'the values are not an object';
    end if;
    select k.name into v_unknown from jsonb_object_keys(p_values) as k (name)
    where not p_known ? k.name limit 1;
    if found then
        raise exception using errcode = 'PN005',
            message = format('there is no setting %L', v_unknown),
            hint    = 'known are ' || array_to_string(array(
                select k.name from jsonb_object_keys(p_known) as k (name) order by 1), ', ');
    end if;
end
$$;

comment on function penstock_payments.check_names(jsonb, jsonb) is
    'Raise PN005 for a value that has no setting.';
revoke all on function penstock_payments.check_names(jsonb, jsonb) from public;
