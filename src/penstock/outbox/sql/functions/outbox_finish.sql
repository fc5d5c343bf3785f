-- A token that no longer matches changes nothing; the outcome is kept as a late result, unless the
-- same token has already finished the row (the answer to the first call was lost).
create or replace function app.outbox_finish(p_seqs bigint[], p_ids uuid[], p_tokens uuid[])
returns table (seq bigint)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_left integer := cardinality(p_seqs)
        - app.outbox_archive_joint(p_tokens, p_seqs, p_seqs, true);
begin
    if v_left > 0 and app.outbox_archive_rows(p_seqs, p_tokens, 'DELIVERED') < v_left then
        return query select r.seq from app.outbox_refused(p_seqs, p_ids, p_tokens, 'done', null) r;
    end if;
end
$$;

comment on function app.outbox_finish(bigint[], uuid[], uuid[]) is
    'Finish delivered events where the token still matches; returns the refused ones.';
revoke all on function app.outbox_finish(bigint[], uuid[], uuid[]) from public;
grant execute on function app.outbox_finish(bigint[], uuid[], uuid[]) to penstock_outbox_executor;
