-- For use inside the user's own transaction: a lost lease raises and so undoes that transaction.
create or replace function webhook.inbox_finish_strict(p_ids uuid[], p_tokens uuid[]) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_lost integer := cardinality(p_ids) - webhook.finish_rows(p_ids, p_tokens);
begin
    if v_lost > 0 then
        raise exception using
            errcode = 'PN204',
            message = format('%s of %s events were taken over by another worker',
                             v_lost, cardinality(p_ids)),
            detail  = 'the handler ran longer than its lease; this transaction is rolled back',
            hint    = 'raise lease_s of queue inbox, or call attempt.extend() in long loops';
    end if;
end
$$;

comment on function webhook.inbox_finish_strict(uuid[], uuid[]) is
    'Finish events inside the caller''s transaction; raises PN204 if a lease is lost.';
revoke all on function webhook.inbox_finish_strict(uuid[], uuid[]) from public;
grant execute on function webhook.inbox_finish_strict(uuid[], uuid[]) to penstock_inbox_executor;
