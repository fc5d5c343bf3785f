"""Hooks of schemathesis: what it generates gets past signatures and finds what exists."""

import hashlib
import hmac
import itertools
import json
import os
from typing import Any

import schemathesis

_turn = itertools.count()
CLAIM = "/rest/v1/rpc/claim_resource_and_queue"


@schemathesis.hook
def before_call(_context: Any, case: Any, _kwargs: dict[str, Any]) -> None:
    """Name what exists, every other time; the rest stays as it was generated."""
    named, pool = next(_turn) % 2 == 0, os.environ["GENERATED_POOL"]
    match case.operation.path:
        case "/webhooks/{source}" if case.method.upper() == "POST":
            _sign(case)
        case "/v1/pools/{pool}/reservations" if named:
            case.path_parameters = {"pool": pool}
            if isinstance(case.body, dict):
                case.body = {**case.body, "user_id": case.body.get("user_id") or "somebody"}
        case path if path == CLAIM and isinstance(case.body, dict):
            body = {**case.body, "p_user_id": case.body.get("p_user_id") or "somebody"}
            case.body = {**body, "p_pool_id": pool} if named else body


def _sign(case: Any) -> None:
    """To a source that exists, as bytes, with their signature."""
    body = case.body
    if not isinstance(body, bytes):
        body = json.dumps(body, default=str).encode("utf-8", "surrogatepass")
    secret = os.environ["GENERATED_SECRET"].encode()
    digest = hmac.new(secret, body, hashlib.sha256).hexdigest()
    case.body, case.media_type = body, "application/octet-stream"
    case.path_parameters = {"source": os.environ["GENERATED_SOURCE"]}
    case.headers = {**(case.headers or {}), "x-signature": f"sha256={digest}"}
