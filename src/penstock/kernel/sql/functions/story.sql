-- Asks each registered queue in turn. A payload may hold anything: only an operator may read one,
-- and leaves an audit row with the reason.
create or replace function penstock.story(
    p_id       uuid,
    p_payload  boolean default false,
    p_reason   text default null,
    p_operator text default null
) returns jsonb
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_queue record;
    v_story jsonb;
begin
    if p_payload and exists (select from pg_roles where rolname = 'penstock_operator')
       and not pg_has_role(session_user, 'penstock_operator', 'member') then
        raise exception using errcode = '42501', message = 'payloads are for penstock_operator';
    end if;
    for v_queue in select q.queue, q.story from penstock.queue q order by q.queue loop
        execute format('select %I.%I($1, $2)',
                       split_part(v_queue.story, '.', 1), split_part(v_queue.story, '.', 2))
        into v_story
        using p_id, p_payload;
        exit when v_story is not null;
    end loop;
    if v_story is null then
        raise exception using errcode = 'PN011', message = format('there is no item %s', p_id);
    end if;
    if p_payload then
        perform audit.record('read_payload', v_queue.queue, jsonb_build_object('id', p_id),
                             p_reason, p_operator);
    end if;
    return v_story;
end
$$;

comment on function penstock.story(uuid, boolean, text, text) is
    'Everything known about an item of any queue; reading its payload is audited.';
revoke all on function penstock.story(uuid, boolean, text, text) from public;
grant execute on function penstock.story(uuid, boolean, text, text)
    to penstock_operator, penstock_auditor;
