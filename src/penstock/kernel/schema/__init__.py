"""Install, upgrade, verify and print the schema of every product; the version handshake."""

from penstock.kernel.schema.handshake import check_installed, check_schema, installed_products
from penstock.kernel.schema.install import migrate
from penstock.kernel.schema.plan import Action, MigrationReport, ProductReport
from penstock.kernel.schema.products import ENGINE, LEDGER, available_products, select_products
from penstock.kernel.schema.roles import ROLES, ensure_roles

__all__ = [
    "ENGINE",
    "LEDGER",
    "ROLES",
    "Action",
    "MigrationReport",
    "ProductReport",
    "available_products",
    "check_installed",
    "check_schema",
    "ensure_roles",
    "installed_products",
    "migrate",
    "select_products",
]
