-- Functions are loaded unchecked, because tables come after them; their bodies are checked here.
do $check$
declare
    v_function record;
begin
    perform set_config('check_function_bodies', 'on', true);
    for v_function in
        select f.oid, l.lanname
        from pg_proc f
        join pg_namespace n on n.oid = f.pronamespace
        join pg_language l on l.oid = f.prolang
        where n.nspname || '.' || f.proname
              = any (string_to_array(current_setting('penstock.argument'), ' '))
    loop
        if v_function.lanname = 'plpgsql' then
            perform plpgsql_validator(v_function.oid);
        elsif v_function.lanname = 'sql' then
            perform fmgr_sql_validator(v_function.oid);
        end if;
    end loop;
    perform set_config('check_function_bodies', 'off', true);
end
$check$;
