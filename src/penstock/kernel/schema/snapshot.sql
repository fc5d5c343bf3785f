-- Describes every object of ours as text: definition, owner and rights. $1 is a JSON array of
-- {product, kind, schema, name}: what the packages create. A schema that belongs to us alone is
-- described whole, so that additions show; in a shared one (public) only the named objects are.
-- Partitions come and go by retention and are left out.
with wanted as (
    select distinct product, kind, schema, name
    from jsonb_to_recordset($1::jsonb) as w (product text, kind text, schema text, name text)
),
space as (
    select n.oid, n.nspname, n.nspowner, n.nspacl, w.product,
           w.product is not null
               and (n.nspname = 'penstock' or pg_get_userbyid(n.nspowner) = 'penstock_owner')
               as whole
    from pg_namespace n
    left join wanted w on w.kind = 'schema' and w.name = n.nspname
    where n.nspname in (select coalesce(schema, name) from wanted)
),
relation as (
    select c.oid, c.relkind, c.relowner, c.relacl, c.relpersistence, c.relrowsecurity,
           c.relforcerowsecurity, c.reloptions, coalesce(w.product, s.product) as product,
           format('%I.%I', s.nspname, c.relname) as id
    from pg_class c
    join space s on s.oid = c.relnamespace
    left join wanted w on w.kind = 'relation' and w.schema = s.nspname and w.name = c.relname
    where c.relkind in ('r', 'p', 'v', 'm', 'S')
      and not c.relispartition
      and (w.product is not null or s.whole)
),
described as (
    select 'schema' as kind, quote_ident(nspname) as id, product, '' as body,
           nspowner as owner, coalesce(nspacl, acldefault('n', nspowner)) as acl
    from space
    where whole

    union all
    select case relkind when 'v' then 'view' when 'm' then 'view' when 'S' then 'sequence'
                        else 'table' end,
           id, product,
           format('persistence %s, row security %s, forced %s, options %s%s%s%s', relpersistence,
                  relrowsecurity, relforcerowsecurity, coalesce(reloptions::text, '{}'),
                  case when relkind = 'p' then E'\npartition by ' || pg_get_partkeydef(oid) end,
                  case when relkind in ('v', 'm') then E'\n' || pg_get_viewdef(oid) end,
                  case when relkind = 'S' then (
                      select format(E'\n%s increment %s from %s to %s cycle %s cache %s',
                                    q.seqtypid::regtype, q.seqincrement, q.seqmin, q.seqmax,
                                    q.seqcycle, q.seqcache)
                      from pg_sequence q where q.seqrelid = relation.oid) end),
           relowner,
           coalesce(relacl, acldefault(case relkind when 'S' then 's' else 'r' end::"char",
                                       relowner))
    from relation

    union all
    select 'column', format('%s.%I', r.id, a.attname), r.product,
           format('%s%s%s%s%s', format_type(a.atttypid, a.atttypmod),
                  case when a.attnotnull then ' not null' end,
                  case when a.attidentity <> '' then ' identity ' || a.attidentity::text end,
                  case when a.attgenerated <> '' then ' generated ' || a.attgenerated::text end,
                  ' default ' || pg_get_expr(d.adbin, d.adrelid)),
           null, a.attacl
    from relation r
    join pg_attribute a on a.attrelid = r.oid and a.attnum > 0 and not a.attisdropped
    left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
    where r.relkind in ('r', 'p')

    union all
    -- Version 18 also lists NOT NULL here; the column says it already, in every version.
    select 'constraint', format('%s: %I', r.id, k.conname), r.product,
           pg_get_constraintdef(k.oid) || case when k.convalidated then '' else ' not valid' end,
           null, null
    from relation r
    join pg_constraint k on k.conrelid = r.oid
    where k.contype in ('c', 'f', 'p', 'u', 'x')

    union all
    select 'index', format('%s: %I', r.id, c.relname), r.product,
           pg_get_indexdef(i.indexrelid) || case when i.indisvalid then '' else ' invalid' end,
           null, null
    from relation r
    join pg_index i on i.indrelid = r.oid
    join pg_class c on c.oid = i.indexrelid

    union all
    select 'trigger', format('%s: %I', r.id, t.tgname), r.product,
           format('%s enabled %s', pg_get_triggerdef(t.oid), t.tgenabled), null, null
    from relation r
    join pg_trigger t on t.tgrelid = r.oid
    where not t.tgisinternal

    union all
    select 'policy', format('%s: %I', r.id, p.polname), r.product,
           format('%s permissive %s to %s using %s check %s', p.polcmd, p.polpermissive,
                  (select string_agg(case when o = 0 then 'public' else pg_get_userbyid(o)::text end,
                                     ', ' order by o) from unnest(p.polroles) as o),
                  coalesce(pg_get_expr(p.polqual, p.polrelid), '-'),
                  coalesce(pg_get_expr(p.polwithcheck, p.polrelid), '-')),
           null, null
    from relation r
    join pg_policy p on p.polrelid = r.oid

    union all
    select 'function',
           format('%I.%I(%s)', s.nspname, f.proname, pg_get_function_identity_arguments(f.oid)),
           coalesce(w.product, s.product),
           case when f.prokind in ('f', 'p') then pg_get_functiondef(f.oid)
                else f.prokind::text end,
           f.proowner, coalesce(f.proacl, acldefault('f', f.proowner))
    from pg_proc f
    join space s on s.oid = f.pronamespace
    left join wanted w on w.kind = 'function' and w.schema = s.nspname and w.name = f.proname
    where w.product is not null or s.whole

    union all
    select 'type', format('%I.%I', s.nspname, t.typname), coalesce(w.product, s.product),
           case t.typtype
               when 'e' then (select string_agg(e.enumlabel, ', ' order by e.enumsortorder)
                              from pg_enum e where e.enumtypid = t.oid)
               when 'd' then (select format('%s%s %s', format_type(t.typbasetype, t.typtypmod),
                                            case when t.typnotnull then ' not null' end,
                                            string_agg(pg_get_constraintdef(k.oid), ' '
                                                       order by k.conname))
                              from pg_constraint k where k.contypid = t.oid)
               else (select string_agg(format('%I %s', a.attname,
                                              format_type(a.atttypid, a.atttypmod)),
                                       ', ' order by a.attnum)
                     from pg_attribute a
                     where a.attrelid = t.typrelid and a.attnum > 0 and not a.attisdropped)
           end,
           t.typowner, coalesce(t.typacl, acldefault('T', t.typowner))
    from pg_type t
    join space s on s.oid = t.typnamespace
    left join pg_class c on c.oid = t.typrelid
    left join wanted w on w.kind = 'type' and w.schema = s.nspname and w.name = t.typname
    where (t.typtype in ('e', 'd') or (t.typtype = 'c' and c.relkind = 'c'))
      and (w.product is not null or s.whole)
),
complete as (
    select d.kind || ' ' || d.id as object, d.kind, coalesce(d.product, '') as product,
           coalesce(d.body, '')
           || case when d.owner is null then ''
                   else E'\nowner ' || pg_get_userbyid(d.owner) end
           || coalesce((
               select E'\nrights ' || string_agg(item, ', ' order by item collate "C")
               from (
                   select case when x.grantee = 0 then 'public'
                               else pg_get_userbyid(x.grantee)::text end
                          || '=' || x.privilege_type
                          || case when x.is_grantable then '*' else '' end as item
                   from aclexplode(d.acl) x
               ) rights), '') as definition
    from described d
)
select object, kind, product, definition,
       encode(sha256(convert_to(definition, 'UTF8')), 'hex') as digest
from complete
