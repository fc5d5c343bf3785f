-- Order of numbers must be order of commits within a key, so the key's lock comes first, is held to
-- the end of the transaction, and only then are numbers drawn: a default would have drawn them
-- before. Whether there is somebody in front is asked under the same lock. Whoever publishes several
-- keys in one transaction should do so in one order everywhere, as with any locks.
-- The end of the line is asked for first, and from its end: a key that has one is seen to have it at
-- once, while the entries of heads that have gone stay in the way as long as a snapshot is held.
create or replace function app.outbox_line_up() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set enable_bitmapscan = off
as $$
declare
    v_hash bigint := app.outbox_key_hash(new.tenant_id, new.ordering_key, new.route);
    v_stale boolean := current_setting('transaction_isolation') <> 'read committed';
begin
    -- The transaction has its id before it draws a position, so that no sweep can settle too early.
    perform pg_current_xact_id(), pg_advisory_xact_lock(v_hash);
    new.key_hash := v_hash;
    new.seq := nextval('public.outbox_seq_seq');
    if v_stale
       or (select o.turn from public.outbox o
           where o.key_hash = v_hash and o.turn is not null order by o.turn desc limit 1) is not null
       or exists (select from public.outbox o
                  where o.key_hash = v_hash and o.turn is null and o.parked_at is null) then
        new.turn := new.seq;
        new.deliver_at := new.next_attempt_at;
        new.pos := null;
        new.next_attempt_at := null;
    elsif new.pos is not null then
        new.pos := nextval('penstock.outbox_next');
    end if;
    -- An old snapshot does not show who is in front: housekeeping looks again.
    if v_stale then
        insert into public.outbox_key_checks (key_hash) values (v_hash);
    end if;
    return new;
end
$$;

comment on function app.outbox_line_up() is
    'Trigger: an event with an ordering key takes its number under the key''s lock, and its turn.';
revoke all on function app.outbox_line_up() from public;
