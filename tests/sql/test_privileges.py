"""Who may do what: every object x right x role, against a reviewed file.

`PENSTOCK_TEST_UPDATE_GOLDEN=1 pytest tests/sql/test_privileges.py` writes the file anew; the change
is then read like any other.
"""

import os
from pathlib import Path

import asyncpg
from tests.support.database import empty_database

from penstock.kernel.schema import ENGINE, LEDGER, migrate, select_products
from penstock.kernel.schema.session import Session
from penstock.postgres import Cluster

GOLDEN = Path(__file__).parent / "golden" / "privileges.txt"
UPDATE_VARIABLE = "PENSTOCK_TEST_UPDATE_GOLDEN"
HEADER = """# Who may do what. One line per object and right; the owner may do all and is left out.
# PUBLIC stands for everyone. Written by PENSTOCK_TEST_UPDATE_GOLDEN=1; read before you commit.
"""

# Effective rights: what a role has by itself or through PUBLIC, whatever granted them.
_MATRIX = """
with role as (
    select rolname::text as name from pg_roles
    where rolname like 'penstock\\_%' and rolname <> 'penstock_owner'
    union all
    select 'public'
),
object as (
    select c.oid, case c.relkind when 'S' then 'sequence' when 'v' then 'view' else 'table' end
               as kind, format('%I.%I', n.nspname, c.relname) as name
    from pg_class c
    join pg_namespace n on n.oid = c.relnamespace
    where pg_get_userbyid(c.relowner) = 'penstock_owner' and c.relkind in ('r', 'p', 'v', 'm', 'S')
      and not c.relispartition
    union all
    select p.oid, 'function',
           format('%I.%I(%s)', n.nspname, p.proname, pg_get_function_identity_arguments(p.oid))
    from pg_proc p
    join pg_namespace n on n.oid = p.pronamespace
    where pg_get_userbyid(p.proowner) = 'penstock_owner' and n.nspname <> 'pgmq'
    union all
    select n.oid, 'schema', quote_ident(n.nspname)
    from pg_namespace n
    where pg_get_userbyid(n.nspowner) = 'penstock_owner'
),
possible (kind, privilege) as (
    values ('function', 'execute'), ('schema', 'usage'), ('schema', 'create'),
           ('sequence', 'usage'), ('sequence', 'select'), ('sequence', 'update'),
           ('table', 'select'), ('table', 'insert'), ('table', 'update'), ('table', 'delete'),
           ('table', 'truncate'), ('table', 'references'), ('table', 'trigger'),
           ('view', 'select'), ('view', 'insert'), ('view', 'update'), ('view', 'delete')
),
may as (
    select o.kind, o.name, p.privilege, r.name as role
    from object o
    join possible p on p.kind = o.kind
    cross join role r
    where case o.kind
              when 'function' then has_function_privilege(r.name, o.oid, p.privilege)
              when 'schema' then has_schema_privilege(r.name, o.oid, p.privilege)
              when 'sequence' then has_sequence_privilege(r.name, o.oid, p.privilege)
              when 'table' then has_table_privilege(r.name, o.oid, p.privilege)
                   or (p.privilege in ('select', 'insert', 'update', 'references')
                       and has_any_column_privilege(r.name, o.oid, p.privilege))
              else has_table_privilege(r.name, o.oid, p.privilege)
          end
)
select o.kind, o.name, coalesce(m.privilege, '-') as privilege,
       case when bool_or(m.role = 'public') then 'PUBLIC'
            else coalesce(string_agg(m.role, ', ' order by m.role collate "C"), 'nobody') end
           as roles
from object o
left join may m on m.kind = o.kind and m.name = o.name
group by o.kind, o.name, m.privilege
order by o.kind, o.name collate "C", privilege collate "C"
"""
_MEMBERSHIPS = """
select g.rolname || ' in ' || r.rolname as membership
from pg_auth_members m
join pg_roles g on g.oid = m.member
join pg_roles r on r.oid = m.roleid
where g.rolname like 'penstock\\_%'
"""
_PARTITION_GRANTS = """
select c.oid::regclass || ' ' || pg_get_userbyid(a.grantee) as right
from pg_class c, aclexplode(c.relacl) a
where c.relispartition and a.grantee <> c.relowner
"""


async def _matrix(cluster: Cluster, home: str, products: tuple[str, ...]) -> str:
    with empty_database(cluster) as url:
        await migrate(url, products=select_products(products))
        conn: Session = await asyncpg.connect(url)
        try:
            rows = await conn.fetch(_MATRIX)
        finally:
            await conn.close()
    lines = [f"{row['kind']} {row['name']}: {row['privilege']}: {row['roles']}" for row in rows]
    return f"\n## {home}\n" + "\n".join(lines) + "\n"


async def test_rights_are_those_of_the_reviewed_file(cluster: Cluster) -> None:
    text = HEADER
    for home, products in (("engine", ENGINE), ("ledger", LEDGER)):
        text += await _matrix(cluster, home, products)
    if os.environ.get(UPDATE_VARIABLE):
        GOLDEN.write_text(text)
    assert text.splitlines() == GOLDEN.read_text().splitlines()


async def test_our_groups_are_not_members_of_each_other(conn: Session) -> None:
    assert not await conn.fetch(_MEMBERSHIPS)


async def test_partitions_are_reached_through_their_table_only(conn: Session) -> None:
    assert not await conn.fetch(_PARTITION_GRANTS)
