"""Takes Stripe's webhooks: each event has its effect once, in the transaction that finishes it."""

from typing import Any

from penstock import Event, Penstock, Tx

ps = Penstock.from_env()

SETUP = """
create table if not exists broken_handlers (event_id text primary key);
grant select on broken_handlers to penstock_inbox_executor;
"""
EFFECT = "insert into webhook_side_effects (provider, event_id, payload) values ('stripe', $1, $2)"


@ps.inbox.on("stripe", "payment_intent.*")
async def paid(event: Event[dict[str, Any]], tx: Tx) -> None:
    """Note the payment. For trying out dead letters, an event can be made to fail."""
    if event.data.get("fail") and await tx.fetchval(
        "select exists (select from broken_handlers where event_id = $1)", event.data["id"]
    ):
        raise RuntimeError("the handler is broken for this event")
    await tx.execute(EFFECT, event.data["id"], event.raw.decode())
