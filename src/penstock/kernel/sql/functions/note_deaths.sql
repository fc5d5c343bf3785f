-- For what dies without a worker that could tell: by the reaper, inside a claim, for want of a route.
-- Where no worker ever asks, what is noted is forgotten after a day.
create or replace function penstock.note_deaths(
    p_queue text, p_ids uuid[], p_topics text[], p_attempts integer[], p_codes text[]
) returns void
language sql
set search_path = pg_catalog, pg_temp
as $$
    delete from penstock.deaths d where d.number = any (array(
        select o.number from penstock.deaths o
        where o.queue = p_queue and o.died_at < penstock.clock() - interval '1 day'
        order by o.number limit 1000 for update skip locked));
    insert into penstock.deaths (queue, item_id, topic, attempt, code)
    select p_queue, d.id, d.topic, d.attempt, coalesce(d.code, 'UNKNOWN')
    from unnest(p_ids, p_topics, p_attempts, p_codes) as d (id, topic, attempt, code)
$$;

comment on function penstock.note_deaths(text, uuid[], text[], integer[], text[]) is
    'Note items of a queue that have just died, for a worker to tell of.';
revoke all on function penstock.note_deaths(text, uuid[], text[], integer[], text[]) from public;
