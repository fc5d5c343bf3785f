-- The month stands in the first six bytes of a UUIDv7. A month whose rows already went to the default
-- partition stays there; the months after it do not.
create or replace function public.payment_partitions() returns integer
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '2s'
as $$
declare
    v_first date := date_trunc('month', penstock.clock() at time zone 'UTC')::date;
    v_month date;
    v_part text;
    v_made integer := 0;
begin
    for v_month in select (v_first + make_interval(months => i))::date
                   from generate_series(0, 3) as i loop
        v_part := 'payment_outbox_attempts_' || to_char(v_month, 'YYYYMM');
        continue when to_regclass('public.' || quote_ident(v_part)) is not null;
        begin
            execute format(
                'create table public.%I partition of public.payment_outbox_attempts '
                'for values from (%L) to (%L)', v_part,
                penstock_payments.first_uuid(v_month),
                penstock_payments.first_uuid((v_month + interval '1 month')::date));
        exception when check_violation then
            continue;
        end;
        execute format('alter table public.%I enable row level security', v_part);
        execute format('comment on table public.%I is %L', v_part,
                       'One month of payment_outbox_attempts');
        execute format(
            'create trigger payment_outbox_attempts_no_truncate before truncate on public.%I '
            'for each statement execute function penstock_payments.refuse_change()', v_part);
        execute format(
            'alter table public.%I enable always trigger payment_outbox_attempts_no_truncate',
            v_part);
        execute format(
            'alter table public.%I enable always trigger payment_outbox_attempts_append_only',
            v_part);
        v_made := v_made + 1;
    end loop;
    return v_made;
end
$$;

comment on function public.payment_partitions() is
    'Create the partitions of this month and the three after it; returns how many were missing.';
revoke all on function public.payment_partitions() from public;
grant execute on function public.payment_partitions() to penstock_payments_executor;
