-- For what dies without a worker that could tell: by the reaper, inside a claim, for want of a route.
-- Where no worker ever asks, what is noted is forgotten after a day, and sooner where a queue's notes
-- span more than a hundred thousand numbers: then its oldest go. Numbers are given to all queues, so a
-- queue may keep fewer. Requests wait for this: it looks at the oldest notes only, however many there are.
create or replace function penstock.note_deaths(
    p_queue text, p_ids uuid[], p_topics text[], p_attempts integer[], p_codes text[]
) returns void
language sql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
set enable_incremental_sort = off
set jit = off
as $$
    -- More than are added, so that the bound holds; none is locked that stays. The order leaves one
    -- index that fits: by another the planner might read the notes of all queues.
    delete from penstock.deaths d where d.number = any (array(
        select o.number from penstock.deaths o where o.number = any (array(
            select h.number
            from (select f.number, f.died_at from penstock.deaths f
                  where (f.queue, f.number) >= (p_queue, '-9223372036854775808'::bigint)
                    and (f.queue, f.number) <= (p_queue, 9223372036854775807)
                  order by f.queue, f.number limit 1000 + coalesce(cardinality(p_ids), 0)) h
            where h.died_at < penstock.clock() - interval '1 day'
               or h.number < (
                   select l.number from penstock.deaths l
                   where (l.queue, l.number) >= (p_queue, '-9223372036854775808'::bigint)
                     and (l.queue, l.number) <= (p_queue, 9223372036854775807)
                   order by l.queue desc, l.number desc limit 1) - 100000))
        for update skip locked));
    insert into penstock.deaths (queue, item_id, topic, attempt, code)
    select p_queue, d.id, d.topic, d.attempt, coalesce(d.code, 'UNKNOWN')
    from unnest(p_ids, p_topics, p_attempts, p_codes) as d (id, topic, attempt, code)
$$;

comment on function penstock.note_deaths(text, uuid[], text[], integer[], text[]) is
    'Note items of a queue that have just died, for a worker to tell of.';
revoke all on function penstock.note_deaths(text, uuid[], text[], integer[], text[]) from public;
