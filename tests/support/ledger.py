"""A template of the ledger database, made once per cluster."""

from tests.support.database import administer, compact, run_apart

from penstock.kernel.schema import migrate, select_products
from penstock.kernel.schema.products import LEDGER
from penstock.postgres import Cluster

TEMPLATE = "penstock_ledger_template"
_made: set[str] = set()


def ledger_template(cluster: Cluster) -> str:
    """The name of a database with the ledger, for cloning."""
    if cluster.url() not in _made:
        administer(cluster, "create database {name}", name=TEMPLATE)
        run_apart(lambda: migrate(cluster.url(TEMPLATE), products=select_products(LEDGER)))
        compact(cluster, TEMPLATE)
        _made.add(cluster.url())
    return TEMPLATE
