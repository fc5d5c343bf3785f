-- The first design of the sale, taken at its word: one slot per call, an unlogged table, SKIP LOCKED
-- without order, one message per call. In a database of its own, to compare with.
create type public.slot_status as enum ('AVAILABLE', 'RESERVED', 'CONSUMED');
create unlogged table public.inventory_slots (
    id        uuid               primary key default gen_random_uuid(),
    pool_id   text               not null,
    status    public.slot_status not null default 'AVAILABLE',
    locked_by text,
    locked_at timestamptz
);
create index idx_available_slots on public.inventory_slots (pool_id, status)
    where status = 'AVAILABLE';
comment on table public.inventory_slots is 'The slots of the first design.';

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
comment on function public.claim_resource_and_queue(text, text) is 'Claim one slot.';

select pgmq.create('intake_queue');
