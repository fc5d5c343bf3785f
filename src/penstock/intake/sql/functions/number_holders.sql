-- A pool that gets a limit numbers the slots that its users already hold, so that they count.
-- Claims read the policy under the shared form of the lock: none is under way with the old policy.
create or replace function penstock_intake.number_holders() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    perform pg_advisory_xact_lock(hashtextextended('penstock.limit/' || new.pool_id, 0));
    update public.inventory_slots s
    set user_nth = n.nth
    from (
        select o.id, row_number() over (partition by o.locked_by order by o.locked_at, o.id)
               + coalesce((select max(m.user_nth) from public.inventory_slots m
                           where m.pool_id = o.pool_id and m.locked_by = o.locked_by), 0) as nth
        from public.inventory_slots o
        where o.pool_id = new.pool_id and o.status <> 'AVAILABLE' and o.user_nth is null
    ) n
    where s.id = n.id;
    return null;
end
$$;

comment on function penstock_intake.number_holders() is
    'Trigger: number what users hold of a pool when it gets a limit.';
revoke all on function penstock_intake.number_holders() from public;
