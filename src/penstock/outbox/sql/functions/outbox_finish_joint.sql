-- Most claims end whole: then a few runs of numbers say all that there is to say. Where less is found
-- than was meant, the caller says the rest by outbox_finish, which knows of lost leases.
create or replace function app.outbox_finish_joint(
    p_tokens uuid[], p_from bigint[], p_upto bigint[]
) returns integer
language sql security definer
set search_path = pg_catalog, pg_temp
as $$
    select app.outbox_archive_joint(p_tokens, p_from, p_upto, true)
$$;

comment on function app.outbox_finish_joint(uuid[], bigint[], bigint[]) is
    'Finish delivered events of joint leases by runs of their numbers; returns how many.';
revoke all on function app.outbox_finish_joint(uuid[], bigint[], bigint[]) from public;
grant execute on function app.outbox_finish_joint(uuid[], bigint[], bigint[])
    to penstock_outbox_executor;
