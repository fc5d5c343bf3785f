-- Messages of paused pools step aside for a while, so that they do not stand before the others at
-- every claim. This is no attempt: read_ct stays as it is. Unread ones above the sweep's floor are
-- found by the sweep, and those read before by their time; the others (given back after the floor
-- had passed them) stay on the list of returned messages.
create or replace function penstock_intake.park_paused(p_msg_ids bigint[], p_pools text[])
returns bigint[]
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    v_parked bigint[];
begin
    with parked as (
        update pgmq.q_intake_queue q set vt = penstock.clock() + interval '5 seconds'
        where q.msg_id = any (p_msg_ids) and q.message ->> 'pool_id' = any (p_pools)
        returning q.msg_id, q.read_ct
    ), listed as (
        insert into penstock_intake.returned (msg_id)
        select p.msg_id from parked p
        where p.read_ct = 0 and p.msg_id <= pg_sequence_last_value('penstock.intake_floor')
        order by p.msg_id on conflict do nothing
    )
    select coalesce(array_agg(p.msg_id), '{}') into v_parked from parked p;
    return array(select i from unnest(p_msg_ids) i where i <> all (v_parked) order by i);
end
$$;

comment on function penstock_intake.park_paused(bigint[], text[]) is
    'Take messages of paused pools out of a pick; returns the rest.';
revoke all on function penstock_intake.park_paused(bigint[], text[]) from public;
