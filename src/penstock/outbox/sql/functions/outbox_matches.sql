-- Topics of our own are taken only by routes that say so: whoever wants everything means his events.
create or replace function app.outbox_matches(p_pattern text, p_topic text) returns boolean
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
    select p_topic like replace(regexp_replace(p_pattern, '([\\%_])', '\\\1', 'g'), '*', '%')
       and (p_topic not like 'penstock.%' or p_pattern like 'penstock.%')
$$;

comment on function app.outbox_matches(text, text) is
    'Whether a topic fits a pattern in which * stands for anything but topics of our own.';
revoke all on function app.outbox_matches(text, text) from public;
