-- Whoever sends a hint names a row and nothing else: what is in it is read here. The name is only
-- compared with the list, so that no identifier is ever made of it.
create or replace function app.outbox_hint(p_table text, p_id uuid) returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_floor bigint := pg_sequence_last_value('penstock.outbox_joint_floor');
begin
    if p_table is distinct from 'public.outbox'
       and not exists (select from public.outbox_relays r where r.name = p_table) then
        return null;
    end if;
    return exists (
        select from public.outbox o
        where o.id = p_id and (p_table = 'public.outbox' or o.relay = p_table)
          and (o.next_attempt_at <= penstock.clock() or o.lease_expires_at <= penstock.clock()
               or (o.pos is not null and not exists (
                       select from public.outbox_joint_leases j
                       where j.number > v_floor and j.seqs @> o.seq and o.pos <= j.upto
                         and j.expires_at > penstock.clock()))));
end
$$;

comment on function app.outbox_hint(text, uuid) is
    'Whether a row of an outbox table waits to be claimed now; null if the table is not one.';
revoke all on function app.outbox_hint(text, uuid) from public;
grant execute on function app.outbox_hint(text, uuid) to penstock_outbox_executor;
