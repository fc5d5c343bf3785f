-- By a difference, because that is immutable; only so can the planner inline it.
create or replace function penstock.milliseconds(p_at timestamptz) returns bigint
language sql immutable parallel safe
as $$
    select floor(extract(epoch from p_at - timestamptz '1970-01-01 00:00:00+00') * 1000)::bigint
$$;

comment on function penstock.milliseconds(timestamptz) is 'Unix milliseconds, as sequences hold them.';
revoke all on function penstock.milliseconds(timestamptz) from public;
