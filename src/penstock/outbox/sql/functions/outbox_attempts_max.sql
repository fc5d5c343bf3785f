create or replace function app.outbox_attempts_max(p_relay text, p_max integer) returns integer
language sql immutable
as $$
    select case when p_relay is null then p_max else least(p_max, 5) end
$$;

comment on function app.outbox_attempts_max(text, integer) is
    'How many attempts a row has: the queue''s number, for relay tables at most five.';
revoke all on function app.outbox_attempts_max(text, integer) from public;
