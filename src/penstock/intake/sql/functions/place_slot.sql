-- A slot that comes on offer goes to the end of the line, under the pool's lock: then slots appear
-- in order of ord, and a watermark never passes one that is yet to appear. Also makes slots that
-- are written by hand whole.
create or replace function penstock_intake.place_slot() returns trigger
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    if new.status = 'AVAILABLE' then
        if tg_op = 'UPDATE' and old.commit_started_at is not null then
            raise exception using
                errcode = 'PN202',
                message = format('slot %s has a started commit and is never offered again', old.id),
                hint    = 'release it with intake_release: it is retired and replaced by a new id';
        end if;
        perform pg_advisory_xact_lock(hashtextextended('penstock.pool/' || new.pool_id, 0));
        new.ord := nextval('penstock_intake.slot_ord');
        new.locked_by := null; new.locked_at := null; new.reservation_id := null;
        new.request_id := null; new.user_nth := null; new.hold_expires_at := null;
        new.validated_at := null; new.commit_started_at := null; new.consumed_at := null;
        new.headers := null; new.sent_at := null;
        return new;
    end if;
    new.ord := coalesce(new.ord, nextval('penstock_intake.slot_ord'));
    new.reservation_id := coalesce(new.reservation_id, penstock.uuidv7());
    new.locked_at := coalesce(new.locked_at, penstock.clock());
    return new;
end
$$;

comment on function penstock_intake.place_slot() is
    'Trigger: gives a slot its place in the line, and completes what was written by hand.';
revoke all on function penstock_intake.place_slot() from public;
