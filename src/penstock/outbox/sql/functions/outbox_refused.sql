-- Which of these were not finished by their own token, neither just now nor before. Each is kept as
-- a late result, once. Both records of an end are asked: the archive and the attempts. An attempt
-- that ended otherwise (reaped, released, retried) does not make a delivery of its token good.
create or replace function app.outbox_refused(
    p_seqs bigint[], p_ids uuid[], p_tokens uuid[], p_verdict text, p_codes text[]
) returns table (seq bigint)
language sql security definer
set search_path = pg_catalog, pg_temp
as $$
    with refused as (
        select f.seq, f.id, f.token, f.code
        from unnest(p_seqs, p_ids, p_tokens, p_codes) as f (seq, id, token, code)
        where not exists (
                select from public.outbox_archive a where a.id = f.id and a.lease_token = f.token)
          and not exists (
                select from public.outbox_attempts a
                where p_verdict <> 'done' and a.event_id = f.id and a.lease_token = f.token
                  and a.outcome in ('RETRY', 'REJECT', 'UNKNOWN'))
    ), kept as (
        insert into penstock.late_results (queue, item_id, lease_token, lease_epoch, verdict, code)
        select 'outbox', r.id, r.token, null, p_verdict, r.code from refused r
        where not exists (
            select from penstock.late_results l
            where l.item_id = r.id and l.lease_token = r.token and l.verdict = p_verdict)
    )
    select r.seq from refused r
$$;

comment on function app.outbox_refused(bigint[], uuid[], uuid[], text, text[]) is
    'Outcomes whose lease was lost: recorded as late results and returned.';
revoke all on function app.outbox_refused(bigint[], uuid[], uuid[], text, text[]) from public;
