-- Lines up what came of a batch, one answer per request. A copy gets the answer of the request that
-- it repeats; that look-up runs only when there are copies.
create or replace function penstock_intake.answer_requests(
    p_all int[], p_kinds text[], p_old_ids uuid[], p_old_reservations uuid[], p_done int[],
    p_ids uuid[], p_reservations uuid[], p_rest text, p_user_ids text[], p_request_ids text[]
) returns table (ordinal int, outcome text, resource_id uuid, reservation_id uuid)
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
    v_outcomes text[] := array_replace(p_kinds, 'fresh', p_rest);
    v_at int;
    v_first int;
begin
    for v_at in 1 .. coalesce(cardinality(p_done), 0) loop
        v_outcomes[p_done[v_at]] := 'reserved';
        p_old_ids[p_done[v_at]] := p_ids[v_at];
        p_old_reservations[p_done[v_at]] := p_reservations[v_at];
    end loop;
    if 'copy' = any (p_kinds) then
        for v_at in select i from generate_subscripts(p_kinds, 1) i where p_kinds[i] = 'copy' loop
            select min(i) into v_first from generate_subscripts(p_all, 1) i
            where p_user_ids[i] = p_user_ids[v_at] and p_request_ids[i] = p_request_ids[v_at];
            v_outcomes[v_at] := case v_outcomes[v_first] when 'reserved' then 'again'
                                else v_outcomes[v_first] end;
            p_old_ids[v_at] := p_old_ids[v_first];
            p_old_reservations[v_at] := p_old_reservations[v_first];
        end loop;
    end if;
    return query select * from unnest(p_all, v_outcomes, p_old_ids, p_old_reservations);
end
$$;

comment on function penstock_intake.answer_requests(
    int[], text[], uuid[], uuid[], int[], uuid[], uuid[], text, text[], text[]) is
    'One answer per request of a batch.';
revoke all on function penstock_intake.answer_requests(
    int[], text[], uuid[], uuid[], int[], uuid[], uuid[], text, text[], text[]) from public;
