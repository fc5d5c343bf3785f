#!/bin/sh
# Buys one ticket over HTTP, step by step: claim, bridge, ticket in the ledger, slot in the engine.
# Needs curl, a running server (`penstock dev` or `penstock serve`) and the keys it was given.
set -eu

engine=${DB1_SUPABASE_URL:-http://127.0.0.1:8400}
ledger=${DB2_SUPABASE_URL:-$engine}
key=${DB1_SUPABASE_SERVICE_ROLE_KEY:?the key that the server was started with}
ledger_key=${DB2_SUPABASE_SERVICE_ROLE_KEY:-$key}
pool=${POOL:-demo_concert_2026}
user=${TICKET_USER:-user_42}
click="click-$(date +%s)-$$"

fail() {
    echo "ticket_drop: $*" >&2
    exit 1
}

claim() {
    curl -sS --fail-with-body -X POST "$engine/rest/v1/rpc/claim_resource_and_queue" \
        -H "apikey: $key" -H 'Content-Type: application/json' \
        -d "{\"p_pool_id\":\"$pool\",\"p_user_id\":\"$user\",\"p_request_id\":\"$click\"}"
}

echo "1. claim a slot of $pool for $user"
seat=$(claim | tr -d '"')
case $seat in
    null) fail "$pool is sold out; stock it: penstock pool seed-demo" ;;
    ????????-????-????-????-????????????) echo "   $seat" ;;
    *) fail "unexpected answer: $seat" ;;
esac

echo "2. click again: the same slot"
again=$(claim | tr -d '"')
[ "$again" = "$seat" ] || fail "the second click got another slot: $again"

echo "3. run the bridge"
curl -sS --fail-with-body -X POST "$engine/functions/v1/bridge-worker" \
    -H "Authorization: Bearer $key"
echo

echo "4. the ticket is in the ledger"
# A worker that runs beside the server may have the message; it is a moment away then.
tries=0
until curl -sS --fail-with-body "$ledger/rest/v1/confirmed_tickets?select=*&user_id=eq.$user" \
    -H "apikey: $ledger_key" | grep "$seat"; do
    tries=$((tries + 1))
    [ "$tries" -lt 20 ] || fail "no ticket for $seat"
    sleep 0.5
done

echo "5. the slot is sold in the engine"
tries=0
until curl -sS --fail-with-body "$engine/rest/v1/inventory_slots?select=id,status&status=eq.CONSUMED" \
    -H "apikey: $key" | grep -o "{[^}]*$seat[^}]*}"; do
    tries=$((tries + 1))
    [ "$tries" -lt 20 ] || fail "$seat is not CONSUMED"
    sleep 0.5
done
echo "sold: $seat to $user"
