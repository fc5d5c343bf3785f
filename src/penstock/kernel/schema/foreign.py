"""Refuses to install over objects of the same name that are somebody else's."""

from penstock.kernel.errors import ForeignObject
from penstock.kernel.schema.session import Session
from penstock.kernel.sqlfiles import Product
from penstock.kernel.sqltext import Creation, Statement, columns

_CHECKED = frozenset({"table", "view", "type", "domain", "sequence", "function", "procedure"})

# One row per name that exists: what it is, and its columns where it has some.
_FOUND = """
with wanted as (
    select schema, name, routine
    from unnest($1::text[], $2::text[], $3::boolean[]) as w (schema, name, routine)
)
select w.schema || '.' || w.name as object,
       case c.relkind when 'r' then 'table' when 'p' then 'table' when 'v' then 'view'
                      when 'm' then 'materialized view' when 'S' then 'sequence'
                      when 'c' then 'type' when 'f' then 'foreign table'
                      else c.relkind::text end as kind,
       array(select array[a.attname::text, format_type(a.atttypid, a.atttypmod)]
             from pg_attribute a
             where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
             order by a.attnum) as columns,
       pg_get_userbyid(c.relowner)::text as owner
from wanted w
join pg_namespace n on n.nspname = w.schema
join pg_class c on c.relnamespace = n.oid and c.relname = w.name
where not w.routine
union all
select w.schema || '.' || w.name, 'type', '{}', pg_get_userbyid(t.typowner)::text
from wanted w
join pg_namespace n on n.nspname = w.schema
join pg_type t on t.typnamespace = n.oid and t.typname = w.name and t.typtype in ('e', 'd')
where not w.routine
union all
select w.schema || '.' || w.name, 'function', '{}', pg_get_userbyid(f.proowner)::text
from wanted w
join pg_namespace n on n.nspname = w.schema
join pg_proc f on f.pronamespace = n.oid and f.proname = w.name
where w.routine
order by 1
"""


async def refuse_foreign(conn: Session, product: Product) -> None:
    """Raise ForeignObject, listing the differences, when a name of the product is taken."""
    wanted = {c.qualified: (c, s) for c, s in product.creations if _is_checked(c)}
    creations = [creation for creation, _ in wanted.values()]
    rows = await conn.fetch(
        _FOUND,
        [c.schema for c in creations],
        [c.name for c in creations],
        [c.kind in {"function", "procedure"} for c in creations],
    )
    if not rows:
        return
    told = []
    for row in rows:
        creation, statement = wanted[row["object"]]
        found = [(name, kind) for name, kind in row["columns"]]
        told.append(
            _difference(creation, statement, kind=row["kind"], owner=row["owner"], found=found)
        )
    names = ", ".join(dict.fromkeys(row["object"] for row in rows))
    raise ForeignObject(
        f"{product.name} would create what already exists: {names}",
        happened="nothing was changed.\n" + "\n".join(dict.fromkeys(told)),
    )


def _is_checked(creation: Creation) -> bool:
    return creation.kind in _CHECKED and not creation.optional and bool(creation.schema)


def _difference(
    creation: Creation,
    statement: Statement,
    *,
    kind: str,
    owner: str,
    found: list[tuple[str, str]],
) -> str:
    lines = [f"    {creation.qualified}: a {kind} of {owner} is there, ours is a {creation.kind}"]
    if creation.kind == "table":
        lines.append(f"      expected  {_listed(list(columns(statement)))}")
    if found:
        lines.append(f"      found     {_listed(found)}")
    return "\n".join(lines)


def _listed(pairs: list[tuple[str, str]]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in pairs)
