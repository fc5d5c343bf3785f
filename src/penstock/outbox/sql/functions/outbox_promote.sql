-- Called when heads are gone, in the transaction that removed them. A producer that still saw the
-- old head has put its event behind it and may not have committed: it holds the key's lock. Where the
-- lock is free there is no such producer, and a second look is the truth; where it is not,
-- housekeeping looks later. Nothing here waits.
create or replace function app.outbox_promote(p_hashes bigint[], p_seqs bigint[]) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_bitmapscan = off
as $$
declare
    v_left bigint[] := app.outbox_lead(p_hashes, p_seqs);
    v_free bigint[];
    v_more bigint[];
begin
    if cardinality(v_left) = 0 then
        return;
    end if;
    v_free := array(
        select l.key_hash from unnest(v_left) as l (key_hash)
        where pg_try_advisory_xact_lock(l.key_hash));
    v_more := array(
        select f.key_hash from unnest(v_free) as f (key_hash)
        where exists (select from public.outbox o
                      where o.key_hash = f.key_hash and o.turn is not null));
    if cardinality(v_more) > 0 then
        v_more := app.outbox_lead(v_more, array_fill(0::bigint, array[cardinality(v_more)]));
    end if;
    insert into public.outbox_key_checks (key_hash)
    select l.key_hash from unnest(v_left) as l (key_hash)
    where l.key_hash <> all (v_free) or l.key_hash = any (v_more);
end
$$;

comment on function app.outbox_promote(bigint[], bigint[]) is
    'Let the next of each key go, after its head (number p_seqs) has gone.';
revoke all on function app.outbox_promote(bigint[], bigint[]) from public;
