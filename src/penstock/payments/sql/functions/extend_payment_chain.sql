-- Runs as a job, so that no dispatch waits for a hash. Rows commit out of order: the floor below which
-- all are linked rises only to a mark whose transactions have all ended.
create or replace function public.extend_payment_chain(p_limit integer default 5000)
returns integer
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_mark penstock_payments.chain_mark;
    v_each record;
    v_participant text;
    v_link bigint;
    v_prev bytea;
    v_count integer := 0;
begin
    select * into v_mark from penstock_payments.chain_mark for update skip locked;
    if not found then
        return 0;
    end if;
    for v_each in
        select n.attempt_id, n.outbox_id, n.participant_id from (
            select a.attempt_id, a.outbox_id, a.participant_id
            from public.payment_outbox_attempts a
            where a.attempt_id >= v_mark.floor_id
              and not exists (select from public.payment_chain c where c.attempt_id = a.attempt_id)
            order by a.attempt_id
            limit least(greatest(coalesce(p_limit, 5000), 1), 100000)) n
        order by n.participant_id, n.attempt_id
    loop
        if v_each.participant_id is distinct from v_participant then
            v_participant := v_each.participant_id;
            select c.link_no, c.hash into v_link, v_prev from public.payment_chain c
            where c.participant_id = v_participant order by c.link_no desc limit 1;
        end if;
        v_link := coalesce(v_link, 0) + 1;
        v_prev := coalesce(v_prev, sha256(convert_to(v_participant, 'UTF8')));
        insert into public.payment_chain
            (participant_id, link_no, attempt_id, outbox_id, prev_hash, hash)
        values (v_participant, v_link, v_each.attempt_id, v_each.outbox_id, v_prev,
                penstock_payments.attempt_hash(v_prev, v_each.attempt_id))
        returning hash into v_prev;
        v_count := v_count + 1;
    end loop;
    if v_count < p_limit then
        perform penstock_payments.move_chain_mark();
    end if;
    return v_count;
end
$$;

comment on function public.extend_payment_chain(integer) is
    'Link the attempts rows that have no link yet; returns how many.';
revoke all on function public.extend_payment_chain(integer) from public;
grant execute on function public.extend_payment_chain(integer) to penstock_payments_executor;
