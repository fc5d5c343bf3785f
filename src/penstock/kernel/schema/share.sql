-- Lets the owner of our objects create in a schema that is not its own, such as public.
do $share$
declare
    v_schema name := current_setting('penstock.argument');
begin
    if (select pg_get_userbyid(nspowner) <> 'penstock_owner'
        from pg_namespace where nspname = v_schema)
       and not (has_schema_privilege('penstock_owner', v_schema, 'create')
                and has_schema_privilege('penstock_owner', v_schema, 'usage')) then
        execute format('grant usage, create on schema %I to penstock_owner', v_schema);
    end if;
end
$share$;
