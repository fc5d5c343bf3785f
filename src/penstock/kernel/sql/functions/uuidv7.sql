-- PostgreSQL has uuidv7() only from 18 on; this one serves 15 to 18 alike. A random (version 4) UUID
-- gets the time as its first six bytes, and its version nibble becomes 7 (4 | 3). One expression: so the
-- planner puts it in place of the call, which costs a fifth.
create or replace function penstock.uuidv7() returns uuid
language sql volatile parallel safe
as $$
    select encode(set_bit(set_bit(overlay(
        uuid_send(gen_random_uuid())
        placing substring(int8send(floor(extract(epoch from clock_timestamp()) * 1000)::bigint) from 3)
        from 1 for 6), 52, 1), 53, 1), 'hex')::uuid
$$;

comment on function penstock.uuidv7() is 'A time-ordered UUID (RFC 9562, version 7).';
revoke all on function penstock.uuidv7() from public;
grant execute on function penstock.uuidv7() to public;
