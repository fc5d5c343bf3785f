-- The look that outbox_promote and producers with an old snapshot asked for.
create or replace function app.outbox_bring_keys() returns integer
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    v_ids bigint[];
    v_free bigint[];
    v_headless bigint[];
begin
    v_ids := array(
        select c.id from public.outbox_key_checks c order by c.id limit 500 for update skip locked);
    if cardinality(v_ids) = 0 then
        return 0;
    end if;
    v_free := array(
        select c.key_hash
        from (select distinct k.key_hash from public.outbox_key_checks k
              where k.id = any (v_ids)) c
        where pg_try_advisory_xact_lock(c.key_hash));
    v_headless := array(
        select f.key_hash from unnest(v_free) as f (key_hash)
        where app.outbox_headless(f.key_hash));
    perform app.outbox_lead(v_headless, array_fill(0::bigint, array[cardinality(v_headless)]));
    delete from public.outbox_key_checks c
    where c.id = any (v_ids) and c.key_hash = any (v_free) and not app.outbox_headless(c.key_hash);
    return cardinality(v_headless);
end
$$;

comment on function app.outbox_bring_keys() is
    'Give lines that were left without a head their next one; returns how many.';
revoke all on function app.outbox_bring_keys() from public;
