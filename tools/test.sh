#!/bin/sh
# Run the whole suite on the embedded Postgres, then what touches SQL on Debian's Postgres 15 where
# that is installed. Says which servers were used.
set -u
BIN=${BIN:-.venv/bin}
WORKERS=${PYTEST_WORKERS:-3} # many tests wait for a process or a clock: one more than cores
SQL_WORKERS=${PYTEST_SQL_WORKERS:-2} # these wait for nothing
OLD=/usr/lib/postgresql/15/bin
MEMORY=/dev/shm
MEMORY_KIB_MIN=4194304

# Hundreds of tests start processes of ours: each compiles all it imports unless it may keep that.
unset PYTHONDONTWRITEBYTECODE

# Half of what a cluster costs is writing its thousand files: where memory is plenty, they go there.
if [ -w "$MEMORY" ] && [ "$(df -Pk "$MEMORY" | awk 'NR == 2 {print $4}')" -gt "$MEMORY_KIB_MIN" ]
then
    TMPDIR=$(mktemp -d "$MEMORY/penstock-tests-XXXXXX") || exit $?
    chmod 1777 "$TMPDIR" # servers run under an account of their own
    export TMPDIR
    trap 'rm -rf "$TMPDIR"' EXIT
    trap 'exit 130' INT TERM
fi

suite() {
    "$BIN/python" -m pytest -q --dist worksteal "$@"
}

suite -n "$WORKERS" "$@" || exit $?
[ $# -eq 0 ] || exit 0

if [ -x "$OLD/postgres" ]; then
    echo "== again on $("$OLD/postgres" --version) =="
    export PENSTOCK_TEST_POSTGRES="$OLD"
    suite -n "$SQL_WORKERS" tests/sql
else
    echo "== Postgres 15 is not installed: the second run was left out =="
fi
