#!/usr/bin/env bash
# Replay dead-lettered webhook events. All the work is done by Python with bound parameters; nothing
# here builds SQL. Exit codes: 0 done, 1 wrong usage, 2 no database, 3 some events do not verify.
#
#   tools/webhook_replay.sh --event-id evt_123
#   tools/webhook_replay.sh --webhook-id UUID --limit 50 --dry-run
#
# Needs DATABASE_URL (or PENSTOCK_DATABASE_URL) and an interpreter that has penstock: PYTHON names it.
set -euo pipefail
exec "${PYTHON:-python3}" -m penstock.inbox.replay "$@"
