"""Writes the migrations under db1/ and db2/ from the SQL of the package.

`--check` writes nothing and fails if a file differs from what the package says. The cron migration,
the seeds, the configuration and the tests there are written by hand.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from penstock.kernel.schema import select_products
from penstock.kernel.schema.script import print_install, print_install_in_two

ROOT = Path(__file__).parent.parent
ENGINE = Path("db1", "supabase", "migrations")
LEDGER = Path("db2", "supabase", "migrations")
NOTE = "-- Written by tools/supabase_trees.py; change the package's SQL, then run `make fmt`.\n"


def rendered() -> Iterator[tuple[Path, str]]:
    """Every generated file, with its text."""
    setup, functions = print_install_in_two(select_products(only="intake"))
    yield ENGINE / "20260224100000_intake_engine_setup.sql", NOTE + setup
    yield ENGINE / "20260224100001_intake_engine_functions.sql", NOTE + functions
    ledger = print_install(select_products(only="ledger"))
    yield LEDGER / "20260224100000_db2_ledger.sql", NOTE + ledger


def main() -> int:
    """Write the files, or compare them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare only")
    only_check = parser.parse_args().check
    stale = []
    for name, text in rendered():
        path = ROOT / name
        if path.is_file() and path.read_text("utf-8") == text:
            continue
        stale.append(name.as_posix())
        if not only_check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
    if stale and only_check:
        print(f"out of date: {', '.join(stale)}; run `make fmt`", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
