-- For use inside the user's own transaction: a lost lease raises and so undoes that transaction.
create or replace function app.outbox_finish_strict(p_seqs bigint[], p_tokens uuid[]) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_lost integer := cardinality(p_seqs)
        - app.outbox_archive_joint(p_tokens, p_seqs, p_seqs, false);
begin
    if v_lost > 0 then
        v_lost := v_lost - app.outbox_archive_rows(p_seqs, p_tokens, 'DELIVERED');
    end if;
    if v_lost > 0 then
        raise exception using
            errcode = 'PN204',
            message = format('%s of %s events were taken over by another worker',
                             v_lost, cardinality(p_seqs)),
            detail  = 'the handler ran longer than its lease; this transaction is rolled back',
            hint    = 'raise lease_s of queue outbox, or call attempt.extend() in long loops';
    end if;
end
$$;

comment on function app.outbox_finish_strict(bigint[], uuid[]) is
    'Finish events inside the caller''s transaction; raises PN204 if a lease is lost.';
revoke all on function app.outbox_finish_strict(bigint[], uuid[]) from public;
grant execute on function app.outbox_finish_strict(bigint[], uuid[]) to penstock_outbox_executor;
