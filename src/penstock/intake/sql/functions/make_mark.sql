-- Runs under the pool's lock (stocking holds it), so two cannot make the same mark.
create or replace function penstock_intake.make_mark(p_pool_id text) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    v_name text := format('penstock_intake.%I', 'pool_' || to_hex(hashtextextended(p_pool_id, 0)));
begin
    execute format('create sequence %s minvalue 0 start 0', v_name);
    perform setval(v_name::regclass, 0);
    insert into penstock_intake.pool_mark (pool_id, watermark) values (p_pool_id, v_name);
end
$$;

comment on function penstock_intake.make_mark(text) is 'Create the watermark of a pool.';
revoke all on function penstock_intake.make_mark(text) from public;
