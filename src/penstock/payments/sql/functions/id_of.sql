-- No settings: only so can the planner inline it.
create or replace function penstock_payments.id_of(p_head text, p_hash bytea) returns uuid
language sql immutable parallel safe
as $$
    select (p_head || substr(encode(p_hash, 'hex'), 1, 3) || '8'
            || substr(encode(p_hash, 'hex'), 4, 15))::uuid
$$;

comment on function penstock_payments.id_of(text, bytea) is
    'A UUIDv7 of its first 13 digits and of a hash.';
revoke all on function penstock_payments.id_of(text, bytea) from public;
