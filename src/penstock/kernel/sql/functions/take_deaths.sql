-- Each death is given to one caller, once, before it is told: at most once, for a caller that ends in
-- between tells nobody. penstock.dead_letters shows what is dead all the same.
create or replace function penstock.take_deaths(p_queue text)
returns table (item_id uuid, topic text, attempt integer, code text)
language sql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_incremental_sort = off
set jit = off
as $$
    with taken as (
        delete from penstock.deaths d where d.number = any (array(
            select o.number from penstock.deaths o
            where (o.queue, o.number) >= (p_queue, '-9223372036854775808'::bigint)
              and (o.queue, o.number) <= (p_queue, 9223372036854775807)
              and penstock.may_run(p_queue)
            order by o.queue, o.number limit 1000 for update skip locked))
        returning d.number, d.item_id, d.topic, d.attempt, d.code
    )
    select t.item_id, t.topic, t.attempt, t.code from taken t order by t.number
$$;

comment on function penstock.take_deaths(text) is
    'Take the deaths of a queue that nobody has told of yet, a thousand at most.';
revoke all on function penstock.take_deaths(text) from public;
grant execute on function penstock.take_deaths(text)
    to penstock_outbox_executor, penstock_payments_executor, penstock_inbox_executor;
