-- Whoever writes the secret itself by mistake must not find it in the table and in the audit log. What
-- is wrong is not quoted, for the same reason.
create or replace function app.outbox_check_references(p_references text[]) returns void
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
    if exists (select from unnest(p_references) as r (reference)
               where r.reference !~ '^(env|file):.') then
        raise exception using
            errcode = 'PN005',
            message = 'a secret is named by env:NAME or file:PATH, never written down',
            hint    = 'put the secret into a variable or a file of the worker and name that';
    end if;
end
$$;

comment on function app.outbox_check_references(text[]) is
    'Refuse what is not a reference to a secret.';
revoke all on function app.outbox_check_references(text[]) from public;
