create or replace function webhook.inbox_finish(p_ids uuid[], p_tokens uuid[])
returns table (id uuid)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    if webhook.finish_rows(p_ids, p_tokens) < cardinality(p_ids) then
        return query select r.id from webhook.inbox_refused(p_ids, p_tokens, 'done', null) r;
    end if;
end
$$;

comment on function webhook.inbox_finish(uuid[], uuid[]) is
    'Finish handled events where the token still matches; returns the refused ones.';
revoke all on function webhook.inbox_finish(uuid[], uuid[]) from public;
grant execute on function webhook.inbox_finish(uuid[], uuid[]) to penstock_inbox_executor;
