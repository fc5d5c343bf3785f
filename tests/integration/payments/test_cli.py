"""`penstock payments`, `penstock held` and `penstock prove` on payments."""

import json
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import psycopg
import pytest
from tests.support.cli import Cli
from tests.support.payments import PAYLOAD

Conn = psycopg.Connection[tuple[object, ...]]
Enqueue = Callable[[str], UUID]


@pytest.fixture
def enqueue(sync_conn: Conn) -> Enqueue:
    def make(participant: str) -> UUID:
        row = sync_conn.execute(
            "select outbox_id from enqueue_payment_outbox(%s, %s, 'k', 'ach', %s::jsonb)",
            (f"i-{participant}", participant, PAYLOAD),
        ).fetchone()
        assert row is not None
        return UUID(str(row[0]))

    return make


def _end(conn: Conn, state: str) -> None:
    """Claim everything, send it, and end it this way."""
    conn.execute(
        """with c as materialized (select outbox_id, lease_token from claim_payment_outbox(100)),
                s as materialized (
                    select mark_payment_sent(array_agg(outbox_id), array_agg(lease_token)) from c)
           select finish_payment_attempts(
               array_agg(c.outbox_id), array_agg(c.lease_token),
               array_fill(%s::text, array[count(*)::integer]))
           from c, (select count(*) from s) sent""",
        (state,),
    )


def test_show_tells_the_whole_story_without_the_payload(
    cli: Cli, sync_conn: Conn, enqueue: Enqueue
) -> None:
    payment = enqueue("p1")
    _end(sync_conn, "DISPATCHED")
    ran = cli("payments", "show", str(payment), "--json")
    assert ran.code == 0
    assert [row["state"] for row in ran.document["attempts"]] == ["DISPATCHING", "DISPATCHED"]
    assert "DE02120300000000202051" not in ran.out
    assert cli("payments", "show", str(UUID(int=7))).code != 0


def test_verify_names_the_first_broken_link(cli: Cli, sync_conn: Conn, enqueue: Enqueue) -> None:
    for name in ("p1", "p2"):
        enqueue(name)
    _end(sync_conn, "DISPATCHED")
    sync_conn.execute("select extend_payment_chain()")
    assert cli("payments", "verify", "--json").document == {"chain": "whole", "broken": []}
    assert cli("prove", "--only", "payments").code == 0
    # What no runtime role can do: switch the guard off and rewrite history.
    sync_conn.execute("alter table payment_outbox_attempts disable trigger all")
    sync_conn.execute(
        "update payment_outbox_attempts set rail_reference = 'forged'"
        " where participant_id = 'p2' and attempt_no = 2"
    )
    ran = cli("payments", "verify")
    assert ran.code == 1
    assert "p2 link 2: its attempt was changed" in ran.out
    assert "p1" not in ran.out
    assert cli("payments", "verify", "--participant", "p1").code == 0
    proved = cli("prove", "--only", "payments", "--json")
    assert (proved.code, proved.document["invariants"]["M7"]) == (1, False)


def test_cancel_withdraws_what_was_not_sent_and_says_so_when_it_is_too_late(
    cli: Cli, sync_conn: Conn, enqueue: Enqueue
) -> None:
    payment = enqueue("p1")
    arguments = ("payments", "cancel", str(payment), "--reason", "typed twice")
    assert cli(*arguments).code == 5, "nobody was asked"
    done = cli(*arguments, "--yes", "--json")
    assert done.code == 0
    reason = sync_conn.execute(
        "select reason from audit.audit_logs where id = %s", (done.document["audit_id"],)
    ).fetchone()
    assert reason == ("typed twice",)
    assert cli(*arguments, "--yes").code == 1


@pytest.mark.parametrize(
    ("resolution", "state"),
    [("dispatched", "DISPATCHED"), ("failed", "FAILED"), ("not_paid", "PENDING")],
)
def test_a_held_payment_is_listed_and_resolved_with_a_reason(
    cli: Cli, sync_conn: Conn, enqueue: Enqueue, *, resolution: str, state: str
) -> None:
    payment = enqueue("p1")
    assert cli("held", "list").code == 0
    _end(sync_conn, "UNKNOWN")
    listed = cli("held", "list", "payments", "--json")
    assert (listed.code, [row["id"] for row in listed.document]) == (1, [str(payment)])
    assert json.loads(cli("held", "show", str(payment), "--json").out)["state"] == "HELD"
    ran = cli(
        *("held", "resolve", str(payment), "--as", resolution, "--reference", "bank-7"),
        *("--reason", "asked the bank", "--yes", "--json"),
    )
    assert ran.code == 0, ran.err
    row = sync_conn.execute(
        "select state from supervisor_outbox_status where outbox_id = %s", (payment,)
    ).fetchone()
    assert row == (state,)
    again = cli("held", "resolve", str(payment), "--as", "failed", "--reason", "x", "--yes")
    assert again.code != 0
    assert "PN505" in again.err


def test_an_operator_holds_and_a_second_person_approves(
    cli: Cli, sync_conn: Conn, enqueue: Enqueue
) -> None:
    payment = enqueue("p1")
    sync_conn.execute("select put_payment_policy('{\"second_approver\": true}', 'test')")
    assert cli("payments", "hold", str(payment), "--reason", "odd").code == 5, "nobody was asked"
    done = cli("payments", "hold", str(payment), "--reason", "odd", "--yes", "--json")
    assert done.code == 0, done.err
    release = ("held", "resolve", str(payment), "--as", "not_paid", "--reason", "fine", "--yes")
    refused = cli(*release)
    assert (refused.code, "PN507" in refused.err) == (5, True)
    assert "penstock payments approve" in refused.err
    approved = cli("payments", "approve", str(payment), "--reason", "seen", "--yes", "--json")
    assert approved.code == 0, approved.err
    assert cli(*release).code == 5, "one's own approval is none"
    sync_conn.execute("update penstock_payments.approvals set approved_by = 'bob'")
    assert cli(*release).code == 0
    operations = sync_conn.execute(
        "select operation from audit.audit_logs where row_data ->> 'id' = %s order by at",
        (str(payment),),
    ).fetchall()
    assert [row[0] for row in operations] == ["hold", "approve", "resolve"]


RAIL = """
[rail.ach]
idempotency_window = "24h"
timeout_ms = 20000
max_concurrency = 8
on_failed = "block"
destination_keys = ["iban"]
codes = { R01 = "REJECT", BUSY = "RETRY" }
"""


def test_a_rail_is_applied_from_a_file_listed_and_exported(cli: Cli, tmp_path: Path) -> None:
    assert "there is no rail" in cli("rail", "list").out
    file = tmp_path / "rails.toml"
    file.write_text(RAIL)
    applied = cli("--json", "apply", str(file), "--reason", "new bank", "--yes")
    assert applied.code == 0, applied.err
    assert cli("--json", "rail", "list").document == [
        {
            "rail": "ach",
            "key_window": "1d",
            "timeout_s": 20.0,
            "in_flight_max": 8,
            "asks": False,
            "on_failed": "block",
            "codes": 2,
        }
    ]
    file.write_text(cli("export").out)
    again = cli("apply", str(file), "--reason", "again", "--yes")
    assert "nothing to change" in again.out, again.out
    file.write_text(RAIL.replace('"block"', '"explode"'))
    assert cli("apply", str(file), "--reason", "typed wrongly", "--yes").code == 2
