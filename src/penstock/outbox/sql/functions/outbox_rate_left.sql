create or replace function app.outbox_rate_left(
    p_rate numeric, p_left numeric, p_at timestamptz, p_now timestamptz
) returns numeric
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
    select least(
        greatest(p_rate / 4, 1),
        coalesce(p_left + greatest(extract(epoch from p_now - p_at), 0) * p_rate,
                 greatest(p_rate / 4, 1)))
$$;

comment on function app.outbox_rate_left(numeric, numeric, timestamptz, timestamptz) is
    'What a rate allows now: a quarter of a second''s worth, or one, is saved up at most.';
revoke all on function app.outbox_rate_left(numeric, numeric, timestamptz, timestamptz) from public;
