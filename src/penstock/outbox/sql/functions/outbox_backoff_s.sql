-- For callers that leave the time of the next attempt to the queue: between the base and a ceiling that
-- doubles up to the cap, by chance, so that what failed together does not come back together.
create or replace function app.outbox_backoff_s(p_attempt integer) returns double precision
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
    select c.backoff_base_s + random() * greatest(
        least(c.backoff_cap_s, c.backoff_base_s * power(2.0, least(greatest(p_attempt, 1), 60)))
        - c.backoff_base_s, 0)
    from penstock.queue_config c where c.queue = 'outbox'
$$;

comment on function app.outbox_backoff_s(integer) is 'Seconds to wait after the given attempt.';
revoke all on function app.outbox_backoff_s(integer) from public;
