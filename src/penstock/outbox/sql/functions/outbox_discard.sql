create or replace function app.outbox_discard(
    p_ids uuid[], p_reason text, p_operator text default null
) returns table (id uuid, audit_id uuid)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_seqs bigint[];
    v_ids uuid[];
begin
    if cardinality(p_ids) > 1000 then
        raise exception using errcode = 'PN005', message = 'at most 1000 events in one call';
    end if;
    select array_agg(d.seq), array_agg(d.id) into v_seqs, v_ids
    from (
        select o.seq, o.id from public.outbox o
        where o.id = any (p_ids) and (o.dead_at is not null or o.held_at is not null)
        order by o.seq
        for update skip locked
    ) d;
    if v_seqs is null then
        return;
    end if;
    perform app.outbox_archive_rows(v_seqs, null, 'DISCARDED');
    return query
        select d.id, audit.record('discard', 'public.outbox', jsonb_build_object('id', d.id),
                                  p_reason, p_operator)
        from unnest(v_ids) as d (id);
end
$$;

comment on function app.outbox_discard(uuid[], text, text) is
    'Give up dead or held events for good: archived as DISCARDED, one audit row each.';
revoke all on function app.outbox_discard(uuid[], text, text) from public;
grant execute on function app.outbox_discard(uuid[], text, text) to penstock_operator;
