-- The first broken link of each participant: a row that is gone or was changed, a link that does not
-- follow from the one before it, a number left out, or a row below the floor without a link. Links cut
-- off at the end leave no trace here: keep the last hash of each chain elsewhere.
create or replace function public.verify_payment_chain(p_participant_id text default null)
returns table (participant_id text, link_no bigint, attempt_id uuid, problem text)
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
    with link as (
        select c.*, penstock_payments.attempt_hash(c.prev_hash, c.attempt_id) as actual,
               row_number() over chain as nth,
               coalesce(lag(c.hash) over chain, sha256(convert_to(c.participant_id, 'UTF8')))
                   as expected
        from public.payment_chain c
        where p_participant_id is null or c.participant_id = p_participant_id
        window chain as (partition by c.participant_id order by c.link_no)
    ), judged as (
        select l.participant_id, l.link_no, l.attempt_id,
               case when l.link_no <> l.nth then 'a link before this one is missing'
                    when l.prev_hash <> l.expected then 'it does not follow from the link before'
                    when l.actual is null then 'its attempt is gone'
                    when l.actual <> l.hash then 'its attempt was changed' end as problem
        from link l
    )
    (select distinct on (j.participant_id) j.participant_id, j.link_no, j.attempt_id, j.problem
     from judged j where j.problem is not null
     order by j.participant_id, j.link_no)
    union all
    select a.participant_id, null, a.attempt_id, 'this attempt was never linked'
    from public.payment_outbox_attempts a, penstock_payments.chain_mark m
    where a.attempt_id < m.floor_id
      and (p_participant_id is null or a.participant_id = p_participant_id)
      and not exists (select from public.payment_chain c where c.attempt_id = a.attempt_id)
$$;

comment on function public.verify_payment_chain(text) is
    'The first broken link of each participant''s chain of attempts; no rows mean it is whole.';
revoke all on function public.verify_payment_chain(text) from public;
grant execute on function public.verify_payment_chain(text)
    to penstock_operator, penstock_auditor;
