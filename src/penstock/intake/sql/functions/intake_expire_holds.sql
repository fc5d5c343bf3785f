-- A hold that ran out ends only while nobody works on its message; a claim that comes upon one says
-- so, and its worker releases it. A started commit is left to its end.
create or replace function public.intake_expire_holds(p_limit int default 1000) returns int
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_ids uuid[];
    v_reservations uuid[];
begin
    if penstock.is_paused('intake') then
        return 0;
    end if;
    select array_agg(e.id), array_agg(e.reservation_id) into v_ids, v_reservations
    from (
        select s.id, s.reservation_id
        from public.inventory_slots s
        where s.status = 'RESERVED' and s.hold_expires_at <= penstock.clock()
          and s.commit_started_at is null
          and not exists (select from pgmq.q_intake_queue q
                          where q.message ->> 'reservation_id' = s.reservation_id::text
                            and q.read_ct > 0 and q.vt > penstock.clock())
        order by s.hold_expires_at limit least(greatest(p_limit, 1), 10000)
    ) e;
    if v_ids is null then
        return 0;
    end if;
    return (select count(*) from public.intake_release(v_ids, v_reservations, 'hold expired') r
            where r.outcome = 'released');
end
$$;

comment on function public.intake_expire_holds(int) is
    'Release reservations whose hold ran out before their commit started; returns how many.';
revoke all on function public.intake_expire_holds(int) from public;
grant execute on function public.intake_expire_holds(int)
    to penstock_intake_executor, penstock_operator;
