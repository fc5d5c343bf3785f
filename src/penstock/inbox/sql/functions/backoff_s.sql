-- 2, 5, 15, 60 seconds after the first four attempts, then doubling up to the queue's cap. Up to a
-- quarter more by chance, so that what failed together does not come back together.
create or replace function webhook.backoff_s(p_attempt integer) returns double precision
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
    select least(c.backoff_cap_s::double precision,
                 coalesce((array[2, 5, 15, 60])[greatest(p_attempt, 1)],
                          60 * 2.0 ^ least(p_attempt - 4, 20))
                 * c.backoff_base_s::double precision / 2)
           * (1 + random() / 4)
    from penstock.queue_config c
    where c.queue = 'inbox'
$$;

comment on function webhook.backoff_s(integer) is 'Seconds to wait after the given attempt.';
revoke all on function webhook.backoff_s(integer) from public;
