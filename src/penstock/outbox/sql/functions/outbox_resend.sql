-- Only written down here; outbox_resend_step does it, piece by piece, and can go on after any end.
create or replace function app.outbox_resend(
    p_destination text, p_since timestamptz, p_until timestamptz, p_reason text,
    p_topic text default null, p_ids uuid[] default null, p_missing boolean default false,
    p_operator text default null
) returns uuid
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_id uuid := penstock.uuidv7();
    v_until timestamptz := least(coalesce(p_until, 'infinity'), penstock.clock());
    v_since timestamptz := greatest(p_since, penstock.clock() - interval '10 years');
begin
    if not exists (select from public.outbox_routes r
                   where r.destination = p_destination and r.enabled) then
        raise exception using
            errcode = 'PN011',
            message = format('there is no route to a destination %L', p_destination),
            hint    = 'add a route first: it says which events the destination is for';
    end if;
    if cardinality(p_ids) > 1000 then
        raise exception using errcode = 'PN005', message = 'at most 1000 events in one call';
    end if;
    if p_ids is null and (p_since is null or v_since >= v_until) then
        raise exception using errcode = 'PN005', message = 'a resend has a beginning before its end';
    end if;
    insert into public.outbox_resends
        (id, destination, topic, event_ids, since_at, until_at, missing, position_at, unsettled, audit_id)
    values (v_id, p_destination, p_topic, p_ids, v_since, v_until, coalesce(p_missing, false), v_since,
            app.outbox_archiving(),
            audit.record('resend', 'public.outbox_archive',
                jsonb_build_object('id', v_id, 'destination', p_destination, 'topic', p_topic,
                                   'since', p_since, 'until', v_until, 'ids', to_jsonb(p_ids),
                                   'missing', p_missing),
                p_reason, p_operator));
    return v_id;
end
$$;

comment on function app.outbox_resend(
    text, timestamptz, timestamptz, text, text, uuid[], boolean, text) is
    'Begin to send archived events once more, to one destination; audited. Returns its id.';
revoke all on function app.outbox_resend(
    text, timestamptz, timestamptz, text, text, uuid[], boolean, text) from public;
grant execute on function app.outbox_resend(
    text, timestamptz, timestamptz, text, text, uuid[], boolean, text) to penstock_operator;
