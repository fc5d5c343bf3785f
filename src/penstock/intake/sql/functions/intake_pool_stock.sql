-- Ids in order of time, so that a claim touches neighbouring pages of the primary key. A COPY into
-- inventory_slots (pool_id) or (id, pool_id) does the same: triggers complete the rows.
create or replace function public.intake_pool_stock(
    p_pool_id text, p_count int, p_reason text, p_operator text default null,
    p_ids uuid[] default null
) returns bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_head text := penstock_intake.uuidv7_head();
    v_seed bytea := uuid_send(gen_random_uuid());
    v_count bigint := coalesce(cardinality(p_ids), p_count);
begin
    if v_count is null or v_count not between 1 and 10000000 then
        raise exception using errcode = '22023', message = 'stock 1 to 10,000,000 slots at a time';
    end if;
    perform penstock_intake.lock_pool(p_pool_id);
    insert into public.engine_config (pool_id) values (p_pool_id) on conflict do nothing;
    if p_ids is not null then
        if exists (select from penstock_intake.retired_slots r where r.id = any (p_ids)) then
            raise exception using errcode = 'PN202',
                message = 'a retired resource id is never offered again';
        end if;
        insert into public.inventory_slots (id, pool_id) select i, p_pool_id from unnest(p_ids) i;
    else
        insert into public.inventory_slots (id, pool_id)
        select (v_head || lpad(to_hex(i::bigint * 4095 / p_count), 3, '0')
                || '8' || substr(encode(sha256(v_seed || int4send(i)), 'hex'), 1, 15))::uuid,
               p_pool_id
        from generate_series(1, p_count) i;
    end if;
    perform audit.record('pool_stock', 'public.inventory_slots',
        jsonb_build_object('pool_id', p_pool_id, 'count', v_count), p_reason, p_operator);
    return v_count;
end
$$;

comment on function public.intake_pool_stock(text, int, text, text, uuid[]) is
    'Put new slots of a pool on offer, with given ids or fresh ones; audited.';
revoke all on function public.intake_pool_stock(text, int, text, text, uuid[]) from public;
grant execute on function public.intake_pool_stock(text, int, text, text, uuid[])
    to penstock_operator, penstock_control;
