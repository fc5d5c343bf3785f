create or replace function penstock_intake.dead_id(p_msg_id bigint, p_message jsonb) returns uuid
language sql immutable parallel safe
as $$
    select coalesce(penstock_intake.as_uuid(p_message ->> 'reservation_id'),
                    lpad(to_hex(coalesce((p_message ->> 'original_msg_id')::bigint, p_msg_id)),
                         32, '0')::uuid)
$$;

comment on function penstock_intake.dead_id(bigint, jsonb) is
    'The id of a dead letter: its reservation, or one made from its number if it has none.';
revoke all on function penstock_intake.dead_id(bigint, jsonb) from public;
grant execute on function penstock_intake.dead_id(bigint, jsonb)
    to penstock_operator, penstock_control, penstock_readonly, penstock_auditor;
