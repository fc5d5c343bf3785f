-- Topics that begin with penstock. are ours: whoever could publish to penstock.alert could page people
-- with anything. Said as a condition, so that the policy of plain inserts asks the same.
create or replace function app.outbox_check_topic(p_topic text) returns boolean
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
    if p_topic is null or length(p_topic) not between 1 and 200 then
        raise exception using errcode = 'PN401', message = 'a topic has 1 to 200 characters';
    end if;
    if p_topic like 'penstock.%' then
        raise exception using
            errcode = 'PN404',
            message = format('topic %L is reserved', p_topic),
            hint    = 'choose a name that does not begin with penstock.';
    end if;
    return true;
end
$$;

comment on function app.outbox_check_topic(text) is
    'True for a topic that producers may publish to; raises PN401 or PN404 for any other.';
revoke all on function app.outbox_check_topic(text) from public;
grant execute on function app.outbox_check_topic(text) to penstock_outbox_ingest;
