-- What a resend would do, counted up to a bound. It writes nothing.
create or replace function app.outbox_resend_plan(
    p_destination text, p_since timestamptz, p_until timestamptz, p_topic text default null,
    p_ids uuid[] default null, p_missing boolean default false, p_limit integer default 100000
) returns table (topic text, route text, events bigint, oldest timestamptz, newest timestamptz)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
    return query
        select n.topic, n.route, count(*), min(n.delivered_at), max(n.delivered_at)
        from app.outbox_resendable(
            p_destination, p_topic, p_ids, coalesce(p_missing, false),
            coalesce(p_since, '-infinity'), 0, least(coalesce(p_until, 'infinity'), penstock.clock()),
            least(p_limit, 1000000)) n
        group by 1, 2 order by 1, 2;
end
$$;

comment on function app.outbox_resend_plan(
    text, timestamptz, timestamptz, text, uuid[], boolean, integer) is
    'How many archived events a resend would send, by topic and route; no route: not sent.';
revoke all on function app.outbox_resend_plan(
    text, timestamptz, timestamptz, text, uuid[], boolean, integer) from public;
grant execute on function app.outbox_resend_plan(
    text, timestamptz, timestamptz, text, uuid[], boolean, integer) to penstock_operator;
