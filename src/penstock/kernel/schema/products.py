"""The registry of products: which packages hold SQL, and which database each belongs to.

Packages are named here by text and looked up when asked for, so that the kernel imports none of
them; a product whose SQL is not installed is not offered.
"""

from functools import cache

from penstock.kernel.errors import WrongUsage
from penstock.kernel.sqlfiles import Product, find_product

KERNEL = "kernel"
_PACKAGES = {
    KERNEL: "penstock.kernel",
    "outbox": "penstock.outbox",
    "intake": "penstock.intake",
    "payments": "penstock.payments",
    "inbox": "penstock.inbox",
    "ledger": "penstock.ledger",
}
# The kernel stands in both databases: each has its own clock, audit log and migration records.
ENGINE = (KERNEL, "outbox", "intake", "payments", "inbox")
LEDGER = (KERNEL, "ledger")


@cache
def _find(name: str) -> Product | None:
    return find_product(name, _PACKAGES[name])


def available_products() -> tuple[Product, ...]:
    """Every product whose SQL is installed, the kernel first."""
    return tuple(found for name in _PACKAGES if (found := _find(name)) is not None)


def select_products(
    names: tuple[str, ...] = ENGINE, only: str | None = None
) -> tuple[Product, ...]:
    """The products to install, in order; `only` narrows them to the kernel and that one."""
    offered = available_products()
    if only is not None:
        if only not in {product.name for product in offered}:
            raise WrongUsage(
                f"there is no product '{only}'; installed here: "
                + ", ".join(product.name for product in offered)
            )
        names = (KERNEL, only)
    return tuple(product for product in offered if product.name in names)
