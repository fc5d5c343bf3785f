-- The control run's engine: the first design of the sale, taken at its word. Runs in a database of
-- its own, from which everything of ours but pgmq is removed first.
drop schema public cascade;
drop schema if exists penstock_intake cascade;
drop schema if exists penstock cascade;
create schema public;

create type public.slot_status as enum ('AVAILABLE', 'RESERVED', 'CONSUMED');
-- Unlogged: fast, and empty after a crash while the queue is not.
create unlogged table public.inventory_slots (
    id        uuid               primary key default gen_random_uuid(),
    pool_id   text               not null,
    status    public.slot_status not null default 'AVAILABLE',
    locked_by text,
    locked_at timestamptz
);
create index idx_available_slots on public.inventory_slots (pool_id, status)
    where status = 'AVAILABLE';
comment on table public.inventory_slots is 'Control run: the seats.';

-- No request id: a second click is a second claim.
create or replace function public.claim_resource_and_queue(p_pool_id text, p_user_id text)
returns uuid language plpgsql as $$
declare
    v_id uuid;
begin
    select s.id into v_id from public.inventory_slots s
    where s.pool_id = p_pool_id and s.status = 'AVAILABLE'
    limit 1 for update skip locked;
    if v_id is null then
        return null;
    end if;
    update public.inventory_slots
    set status = 'RESERVED', locked_by = p_user_id, locked_at = now() where id = v_id;
    perform pgmq.send('intake_queue', jsonb_build_object('pool_id', p_pool_id,
        'resource_id', v_id, 'user_id', p_user_id, 'state', 'queued'));
    return v_id;
end
$$;
comment on function public.claim_resource_and_queue(text, text) is 'Control run: claim a seat.';

create or replace function public.intake_queue_read(p_visibility_timeout int, p_batch_size int)
returns table (msg_id bigint, read_ct int, message jsonb) language sql as $$
    select r.msg_id, r.read_ct, r.message
    from pgmq.read('intake_queue', p_visibility_timeout, p_batch_size) r
$$;
comment on function public.intake_queue_read(int, int) is 'Control run: read messages.';

create or replace function public.intake_queue_delete(p_msg_ids bigint[]) returns setof bigint
language sql as $$ select * from pgmq.delete('intake_queue', p_msg_ids) $$;
comment on function public.intake_queue_delete(bigint[]) is 'Control run: acknowledge messages.';

-- Takes the caller's word for payload and count.
create or replace function public.intake_route_to_dlq(
    p_msg_id bigint, p_payload jsonb, p_read_ct int
) returns bigint language plpgsql as $$
declare
    v_dead bigint;
begin
    select s into v_dead from pgmq.send('intake_dlq', p_payload || jsonb_build_object(
        'original_msg_id', p_msg_id, 'final_read_ct', p_read_ct, 'routed_to_dlq_at', now())) s;
    perform pgmq.delete('intake_queue', p_msg_id);
    return v_dead;
end
$$;
comment on function public.intake_route_to_dlq(bigint, jsonb, int) is 'Control run: give up.';

-- Looks at intake_queue only: what lies in the DLQ counts as forgotten.
create or replace function public.reap_orphaned_slots(
    p_stale_threshold interval default '10 minutes'
) returns int language plpgsql as $$
declare
    v_count int;
begin
    with stale as (
        select s.id from public.inventory_slots s
        where s.status = 'RESERVED' and s.locked_at < now() - p_stale_threshold
          and not exists (select from pgmq.q_intake_queue q
                          where q.message ->> 'resource_id' = s.id::text)
        for update skip locked
    )
    update public.inventory_slots s
    set status = 'AVAILABLE', locked_by = null, locked_at = null
    from stale where s.id = stale.id;
    get diagnostics v_count = row_count;
    return v_count;
end
$$;
comment on function public.reap_orphaned_slots(interval) is 'Control run: put seats back.';

-- The operator's replay: read, send again, delete.
create or replace function public.replay_dead_letters() returns int language plpgsql as $$
declare
    v_dead record;
    v_count int := 0;
begin
    for v_dead in select d.msg_id, d.message from pgmq.q_intake_dlq d order by d.msg_id loop
        perform pgmq.send('intake_queue', v_dead.message);
        perform pgmq.delete('intake_dlq', v_dead.msg_id);
        v_count := v_count + 1;
    end loop;
    return v_count;
end
$$;
comment on function public.replay_dead_letters() is 'Control run: try dead letters again.';
