#!/usr/bin/env bash
# Run the webhook contract tests on the empty database that DATABASE_URL names. Logs and dumps go to
# the directory given as the first argument. The last line says `Contract tests passed.`
set -euo pipefail
cd "$(dirname "$0")/.."
if [[ -z "${DATABASE_URL:-}" ]]; then
    echo "set DATABASE_URL to an empty database that may be written to" >&2
    exit 2
fi
exec "${PYTHON:-python3}" -m tests.contract.webhook_contracts "${1:-webhook-contracts}"
