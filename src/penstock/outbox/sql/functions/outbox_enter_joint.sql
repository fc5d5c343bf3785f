-- Joint claims go one after the other (a queue: they wait for each other, not for long), and not while
-- somebody works on single rows (a try: a forgotten transaction must not stop them). Both till the end
-- of the transaction, so that whoever comes next sees the lease.
create or replace function app.outbox_enter_joint() returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '200ms'
as $$
begin
    if not pg_try_advisory_xact_lock(hashtextextended('penstock.outbox_joint', 0)) then
        perform pg_advisory_xact_lock(hashtextextended('penstock.outbox_joint', 0));
    end if;
    -- Whoever was before gives its locks back one after the other.
    for v_try in 1..3 loop
        if pg_try_advisory_xact_lock(hashtextextended('penstock.outbox_rows', 0)) then
            return true;
        end if;
        perform pg_sleep(0.0005);
    end loop;
    return false;
exception
    when lock_not_available then
        return false;
end
$$;

comment on function app.outbox_enter_joint() is
    'Be the only one that claims; false where that cannot be had at once.';
revoke all on function app.outbox_enter_joint() from public;
