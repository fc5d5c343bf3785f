"""The documented HTTP interface: it is what is routed, and nothing sent to it breaks the server."""

import importlib.util
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import psycopg
import pytest
from tests.support.brokers import free_port
from tests.support.programs import running
from tests.support.sources import ROOT

from penstock import Penstock
from penstock.api.mount import Mounted
from penstock.api.openapi import document

DOCUMENT = ROOT / "docs" / "reference" / "openapi.json"
KEYS = {
    "PENSTOCK_SERVICE_ROLE_KEY": "service-key-of-the-generated-requests",
    "PENSTOCK_OUTBOX_SECRETS": "outbox-secret-of-the-generated-requests",
    "GENERATED_SECRET": "secret-of-the-generated-webhooks",
    "GENERATED_SOURCE": "generated",
    "GENERATED_POOL": "pool",
}
EXAMPLES = 10
CHECKS = ",".join(
    [
        "not_a_server_error",
        "status_code_conformance",
        "content_type_conformance",
        "response_schema_conformance",
    ]
)


async def test_the_document_names_every_route_and_no_other(database_url: str) -> None:
    async with Penstock(database_url) as ps:
        routed = Mounted(ps).operations()
    named = {
        (method.upper(), path.replace("{source}", ""))
        for path, methods in document()["paths"].items()
        for method in methods
    }
    assert named - {("GET", "/webhooks/")} == routed, "hot routes are known by their path alone"


@pytest.fixture
def server(database_url: str, tmp_path: Path) -> Iterator[str]:
    """A real `penstock serve`, with a pool to claim from and a source of webhooks."""
    with psycopg.connect(database_url, autocommit=True) as conn:
        conn.execute(
            "select webhook.put_source(%s, 'hmac', array['env:GENERATED_SECRET'], '{}', 'test')",
            [KEYS["GENERATED_SOURCE"]],
        )
        conn.execute("select intake_pool_stock(%s, 50, 'test')", [KEYS["GENERATED_POOL"]])
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    environ = {**KEYS, "PENSTOCK_DATABASE_URL": database_url}
    with running(["serve", "--port", str(port)], tmp_path, environ) as program:
        program.until(lambda: _answers(f"{url}/readyz"), "it is ready")
        yield url
        assert program.process.poll() is None, program.output
        assert program.stop() == 0, program.output
        assert "Traceback" not in program.output


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as response:
            return bool(response.status == 200)
    except OSError:
        return False


@pytest.mark.skipif(
    importlib.util.find_spec("schemathesis") is None, reason="schemathesis is not installed"
)
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("who", ["service", "nobody"])
def test_generated_requests_find_no_server_error(
    server: str, database_url: str, tmp_path: Path, who: str
) -> None:
    arguments = ["run", str(DOCUMENT), "--url", server, "--checks", CHECKS, "--no-color"]
    arguments += ["--max-examples", str(EXAMPLES), "--phases", "coverage,fuzzing"]
    arguments += ["--generation-deterministic"]
    arguments += ["--report-ndjson-path", str(tmp_path / "events.ndjson")]
    if who == "service":
        arguments += ["--header", f"Authorization: Bearer {KEYS['PENSTOCK_SERVICE_ROLE_KEY']}"]
        arguments += ["--header", f"x-outbox-secret: {KEYS['PENSTOCK_OUTBOX_SECRETS']}"]
    ran = subprocess.run(
        [sys.executable, "-m", "schemathesis.cli", *arguments],
        cwd=tmp_path,
        env={
            **os.environ,
            **KEYS,
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
            "SCHEMATHESIS_HOOKS": "tests.support.schemathesis_hooks",
        },
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert ran.returncode == 0, ran.stdout[-6000:] + ran.stderr[-2000:]
    with psycopg.connect(database_url) as conn:
        stored = conn.execute("select count(*) from webhook_events").fetchone()
        reserved = conn.execute("select reserved from intake_pool_stats").fetchone()
    # What was generated did get past the door; else nothing was tried at all.
    assert stored is not None
    assert stored[0] > 10
    assert reserved is not None
    assert (reserved[0] > 0) == (who == "service")


HOSTILE: tuple[tuple[str, object], ...] = (
    ("/functions/v1/admin-dlq?pool_id=%00", None),
    ("/functions/v1/admin-dlq?pool_id=%ED%A0%80", None),
    ("/functions/v1/admin-dlq?limit=0", None),
    ("/functions/v1/admin-dlq/replay", {"msg_ids": [1], "reason": "\0"}),
    ("/functions/v1/admin-dlq/discard", {"msg_ids": [2**63 - 1], "reason": "\0"}),
    ("/v1/pools/%00/reservations", {"user_id": "somebody"}),
    ("/v1/pools/p/reservations", {"user_id": "\0"}),
    ("/v1/reservations/%00", None),
    ("/rest/v1/inventory_slots?pool_id=eq.%00", None),
    ("/rest/v1/inventory_slots?offset=999999999&limit=0", None),
    ("/rest/v1/rpc/claim_resource_and_queue", {"p_pool_id": "\0", "p_user_id": "u"}),
    ("/api/internal/outbox-relay", {"table": "public.\0", "id": str(UUID(int=1))}),
    ("/webhooks/%00", {}),
)


def test_what_postgres_cannot_hold_is_no_server_error(server: str) -> None:
    answers = {path: _status(f"{server}{path}", body) for path, body in HOSTILE}
    assert {path: status for path, status in answers.items() if status >= 500} == {}


def _status(url: str, body: object) -> int:
    headers = {
        "authorization": f"Bearer {KEYS['PENSTOCK_SERVICE_ROLE_KEY']}",
        "x-outbox-secret": KEYS["PENSTOCK_OUTBOX_SECRETS"],
        "idempotency-key": "one",
    }
    data = None if body is None else json.dumps(body).encode()
    try:
        request = urllib.request.Request(url, data, headers)
        with urllib.request.urlopen(request, timeout=10) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        return error.code
