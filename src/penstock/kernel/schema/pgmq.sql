-- Intake's queues are pgmq queues. Where the server offers the extension it is used; elsewhere this
-- makes room for the SQL of the official package. The argument is the owner of our objects, or
-- empty where roles are managed by hand.
do $pgmq$
declare
    v_owner text := current_setting('penstock.argument');
begin
    if to_regnamespace('pgmq') is null then
        if exists (select from pg_available_extensions where name = 'pgmq') then
            create extension pgmq;
        elsif v_owner = '' then
            create schema pgmq;
        else
            execute format('create schema pgmq authorization %I', v_owner);
        end if;
    end if;
    if v_owner <> '' and v_owner <> (select pg_get_userbyid(nspowner)
                                     from pg_namespace where nspname = 'pgmq') then
        execute format('grant usage, create on schema pgmq to %I', v_owner);
        execute format('grant select, insert, update, delete on all tables in schema pgmq to %I',
                       v_owner);
        execute format('grant execute on all functions in schema pgmq to %I', v_owner);
    end if;
end
$pgmq$;
