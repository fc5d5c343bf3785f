-- Asking the system for random bytes costs more than all the rest of an id, so one seed is asked for
-- and spread over the rows by a hash: unguessable, since the seed is told to nobody.
create or replace function penstock_payments.make_ids(p_count integer) returns uuid[]
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
    v_seed bytea := uuid_send(gen_random_uuid());
    v_head text := lpad(to_hex(penstock.milliseconds(clock_timestamp())), 12, '0') || '7';
begin
    return array(
        select penstock_payments.id_of(v_head, sha256(v_seed || int4send(i)))
        from generate_series(1, p_count) as i order by 1);
end
$$;

comment on function penstock_payments.make_ids(integer) is 'So many UUIDv7 of now, in order.';
revoke all on function penstock_payments.make_ids(integer) from public;
