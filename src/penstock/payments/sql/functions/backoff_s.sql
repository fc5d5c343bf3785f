create or replace function penstock_payments.backoff_s(p_attempt integer) returns double precision
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select least(c.backoff_cap_s, c.backoff_base_s * 2 ^ least(p_attempt - 1, 20))::double precision
    from penstock.queue_config c where c.queue = 'payments'
$$;

comment on function penstock_payments.backoff_s(integer) is
    'How long to wait after an attempt when the caller does not say.';
revoke all on function penstock_payments.backoff_s(integer) from public;
