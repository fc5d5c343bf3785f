-- Deliveries to configured destinations are claimed by outbox_claim_for alone. Whoever claims by topic
-- never names their routes; whoever claims everything must not get them. Pauses count for handlers in
-- Python too.
create or replace function app.outbox_elsewhere(p_everything boolean) returns text[]
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
    v_paused text[] := penstock.paused('destination');
begin
    if cardinality(v_paused) > 0 then
        return array(
            select r.route from public.outbox_routes r
            join public.outbox_destinations d on d.name = r.destination
            where (p_everything and d.kind <> 'python') or d.name = any (v_paused)
            union
            select p.topic from app.outbox_plain_topics() p where p.destination = any (v_paused));
    end if;
    if p_everything then
        return array(
            select r.route from public.outbox_routes r
            join public.outbox_destinations d on d.name = r.destination
            where d.kind <> 'python');
    end if;
    return '{}';
end
$$;

comment on function app.outbox_elsewhere(boolean) is
    'Topics that outbox_claim leaves alone: of paused destinations, and those of outbox_claim_for.';
revoke all on function app.outbox_elsewhere(boolean) from public;
