-- For a client that knows its token only. Fewer than it holds means that a lease is lost: whoever
-- publishes the rest of its batch then publishes what another has taken over.
create or replace function app.outbox_extend(p_token uuid) returns integer
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
    v_seqs bigint[];
begin
    perform app.outbox_split_all(p_token);
    v_seqs := array(
        select o.seq from public.outbox o where o.processing_token = p_token order by o.seq);
    return cardinality(v_seqs) - (
        select count(*)
        from app.outbox_extend(v_seqs, array_fill(p_token, array[cardinality(v_seqs)])));
end
$$;

comment on function app.outbox_extend(uuid) is
    'Prolong every lease of a token; returns how many it still holds.';
revoke all on function app.outbox_extend(uuid) from public;
grant execute on function app.outbox_extend(uuid) to penstock_outbox_executor;
