#!/bin/sh
# Run the whole suite on the embedded Postgres, then what touches SQL on Debian's Postgres 15 where
# that is installed. Says which servers were used.
set -u
BIN=${BIN:-.venv/bin}
WORKERS=${PYTEST_WORKERS:-2}
OLD=/usr/lib/postgresql/15/bin

"$BIN/python" -m pytest -q -n "$WORKERS" "$@" || exit $?
[ $# -eq 0 ] || exit 0

if [ -x "$OLD/postgres" ]; then
    echo "== again on $("$OLD/postgres" --version) =="
    PENSTOCK_TEST_POSTGRES=$OLD "$BIN/python" -m pytest -q -n "$WORKERS" tests/sql
else
    echo "== Postgres 15 is not installed: the second run was left out =="
fi
