-- The caller is the role that was set, else the login: inside a security definer function
-- current_user is the owner. A database installed without roles has nobody to tell apart.
create or replace function penstock.may_run(p_product text) returns boolean
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select p_product is null or r.executor is null
           or pg_has_role(c.caller, r.executor, 'member')
           or coalesce(pg_has_role(c.caller, r.operator, 'member'), false)
           or pg_has_role(c.caller, r.owner, 'member')
    from (select coalesce(nullif(current_setting('role'), 'none'), session_user)::name as caller) c,
         (select to_regrole(format('penstock_%s_executor', p_product))::oid as executor,
                 to_regrole('penstock_operator')::oid as operator,
                 (select t.relowner from pg_class t
                  where t.oid = 'penstock.schedule'::regclass) as owner) r
$$;

comment on function penstock.may_run(text) is
    'Whether the caller may run jobs of a product: its executor, an operator or the owner.';
revoke all on function penstock.may_run(text) from public;
