"""Accounts of a NATS server in operator mode: who may log in is signed, and is no list of users."""

import base64
import hashlib
import json
import time
from typing import Any

import nkeys

_LIMITS = (
    *("subs", "data", "payload", "imports", "exports", "conn", "leaf"),
    *("mem_storage", "disk_storage", "streams", "consumer"),
)


class Key:
    """A key pair made from a number."""

    def __init__(self, kind: int, number: int) -> None:
        self.seed: bytes = nkeys.encode_seed(bytes([number]) * 32, kind)
        self.pair = nkeys.from_seed(bytearray(self.seed))
        self.public: str = self.pair.public_key.decode()

    def sign(self, subject: "Key", claims: dict[str, Any]) -> str:
        """A JWT about the subject, in the form of NATS."""
        body = {
            "iat": int(time.time()),
            "iss": self.public,
            "sub": subject.public,
            "name": "test",
            "nats": {**claims, "version": 2},
        }
        body["jti"] = base64.b32encode(hashlib.sha256(json.dumps(body).encode()).digest()).decode()
        parts = [_encoded(part) for part in ({"typ": "JWT", "alg": "ed25519-nkey"}, body)]
        signature = self.pair.sign(".".join(parts).encode())
        return ".".join([*parts, base64.urlsafe_b64encode(signature).decode().rstrip("=")])


def operator_mode() -> tuple[str, str]:
    """The configuration of a server, and the contents of a `.creds` file that it lets in."""
    operator = Key(nkeys.PREFIX_BYTE_OPERATOR, 1)
    account, system = (Key(nkeys.PREFIX_BYTE_ACCOUNT, number) for number in (2, 3))
    user = Key(nkeys.PREFIX_BYTE_USER, 4)
    unlimited = {**dict.fromkeys(_LIMITS, -1), "wildcards": True}
    config = (
        f"operator: {operator.sign(operator, {'type': 'operator'})}\n"
        f"system_account: {system.public}\nresolver: MEMORY\nresolver_preload: {{\n"
        f"  {account.public}: {operator.sign(account, {'type': 'account', 'limits': unlimited})}\n"
        f"  {system.public}: {operator.sign(system, {'type': 'account', 'limits': {}})}\n}}"
    )
    token = account.sign(user, {"type": "user", "subs": -1, "data": -1, "payload": -1})
    creds = (
        f"-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{user.seed.decode()}\n------END USER NKEY SEED------\n"
    )
    return config, creds


def _encoded(part: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")
