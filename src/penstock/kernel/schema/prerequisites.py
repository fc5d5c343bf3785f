"""What a product needs of others before its own SQL can be applied: pgmq, for intake's queues."""

import importlib.util
from collections.abc import Iterator
from importlib.resources import files

from penstock.kernel.schema.apply import Step, Target, packaged, with_argument
from penstock.kernel.schema.roles import OWNER
from penstock.kernel.sqlfiles import Product
from penstock.kernel.sqltext import Statement, split

_TAG = "$penstock_pgmq$"


def prerequisites(product: Product, target: Target, *, bundled: bool = True) -> Iterator[Step]:
    """The steps that come first; none for a product that needs nothing.

    Without `bundled` pgmq must come from the server: its text is not put into the steps.
    """
    if not _uses_pgmq(product):
        return
    label = f"{product.name}: pgmq"
    yield Step(label, with_argument("pgmq.sql", OWNER if target.roles else ""), as_owner=False)
    without = _pgmq_without_extension() if bundled else packaged("pgmq_missing.sql")
    yield Step(label, without, as_owner=target.roles)


def _uses_pgmq(product: Product) -> bool:
    statements = (statement for file in product.files() for statement in file.statements)
    return any(("pgmq", ".") in zip(s.words, s.words[1:], strict=False) for s in statements)


def _pgmq_without_extension() -> str:
    """Run the official SQL where neither the extension nor an earlier run has brought it.

    The text is not idempotent, hence the guard around it. Its own `create schema` is left out: the
    schema is there, and the owner of our objects may not create any.
    """
    # Located without being imported: only the SQL of the package is used.
    if importlib.util.find_spec("pgmq") is None:
        return packaged("pgmq_missing.sql")
    text = files("pgmq").joinpath("sql", "pgmq.sql").read_text("utf-8")
    kept = ";\n".join(s.text for s in split(text) if not _creates_schema(s))
    assert _TAG not in kept
    return (
        "do $penstock_guard$\nbegin\n"
        "if to_regprocedure('pgmq.create(text)') is null then\n"
        f"execute {_TAG}\n{kept}\n{_TAG};\n"
        "end if;\nend\n$penstock_guard$"
    )


def _creates_schema(statement: Statement) -> bool:
    return statement.starts("do") and "create schema" in statement.text.lower()
