-- What is said to be delivered was, and relay tables say what became of their rows. As outbox_prove: one
-- snapshot, and nothing older than history is kept.
create or replace function app.outbox_prove_ends(p_since interval default interval '1 day')
returns table (invariant text, subject text, detail text)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_since timestamptz := (
        select penstock.clock() - least(coalesce(p_since, c.retention), c.retention)
        from penstock.queue_config c where c.queue = 'outbox');
    v_name text;
begin
    return query
        select 'O3', 'event ' || a.id, 'is said to be delivered, but nobody delivered it'
        from public.outbox_archive a
        where a.delivered_at >= v_since and a.created_at >= v_since and a.state = 'DELIVERED'
          and a.lease_token is null
          and not exists (select from public.outbox_archive d where d.event_id = a.id);
    for v_name in select r.name from public.outbox_relays r order by r.name loop
        return query execute format(
            'select f.invariant, %L || r.id, f.detail from %s r '
            'cross join lateral app.outbox_prove_row(r.id, r.status, r.retry_count) f '
            'where r.created_at >= $1', v_name || ' ', v_name::regclass) using v_since;
    end loop;
end
$$;

comment on function app.outbox_prove_ends(interval) is
    'Violations of O3, L1, L3 and L4 among what is younger than p_since; no rows means that they hold.';
revoke all on function app.outbox_prove_ends(interval) from public;
grant execute on function app.outbox_prove_ends(interval)
    to penstock_operator, penstock_readonly, penstock_auditor;
