"""Identity over HTTP: what is accepted, what is refused, and who may act for whom."""

import base64
import hmac
import json
import time
from collections.abc import Mapping
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from penstock.api.auth import Authenticator, Principal, Role
from penstock.api.keys import REFRESH_PAUSE_S, KeySet
from penstock.kernel.http_errors import NotAllowed, NotAuthenticated
from penstock.kernel.secrets import Secret
from penstock.kernel.settings import Settings, with_values

SECRET = "s" * 64
EC_KEY = ec.generate_private_key(ec.SECP256R1())
OTHER_KEY = ec.generate_private_key(ec.SECP256R1())
RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)


def settings(**values: object) -> Settings:
    given: dict[str, object] = {
        "jwt_secret": Secret(SECRET),
        "service_role_key": Secret("service-key"),
        "anon_key": Secret("anon-key"),
        "worker_key": Secret("worker-key"),
        "admin_key": Secret("admin-key"),
    }
    return with_values(Settings(), **{**given, **values})


def claims(**changes: object) -> dict[str, object]:
    given: dict[str, object] = {
        "sub": "alice",
        "aud": "authenticated",
        "exp": int(time.time()) + 60,
    }
    given |= changes
    return {name: value for name, value in given.items() if value is not None}


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def signed(key: Any = SECRET, algorithm: str = "HS256", **changes: object) -> dict[str, str]:
    return bearer(jwt.encode(claims(**changes), key, algorithm=algorithm))


class Keys:
    """A JWKS document that counts how often it is read."""

    def __init__(self, **keys: Any) -> None:
        self.keys = keys
        self.reads = 0
        self.broken = False

    async def read(self) -> bytes:
        self.reads += 1
        if self.broken:
            raise OSError("gone")
        return json.dumps(
            {"keys": [self._public(kid, key) for kid, key in self.keys.items()]}
        ).encode()

    def _public(self, kid: str, key: Any) -> Mapping[str, Any]:
        if isinstance(key, rsa.RSAPrivateKey):
            document = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key()))
        else:
            document = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(key.public_key()))
        return {**document, "kid": kid}


def by_key(kid: str, key: Any, algorithm: str = "ES256", **changes: object) -> dict[str, str]:
    return bearer(jwt.encode(claims(**changes), key, algorithm=algorithm, headers={"kid": kid}))


async def test_a_signed_token_names_its_user() -> None:
    found = await Authenticator(settings()).principal(signed())
    assert found == Principal(Role.USER, "alice")


async def test_the_role_claim_makes_a_service() -> None:
    found = await Authenticator(settings()).principal(signed(role="service_role", sub=None))
    assert found == Principal(Role.SERVICE)


async def test_keys_count_as_bearer_and_as_apikey_and_the_bearer_decides() -> None:
    auth = Authenticator(settings())
    assert (await auth.principal({"apikey": "service-key"})).role is Role.SERVICE
    assert (await auth.principal(bearer("service-key"))).role is Role.SERVICE
    assert (await auth.principal({"apikey": "anon-key"})).role is Role.ANONYMOUS
    both = {"apikey": "service-key", **signed()}
    assert (await auth.principal(both)) == Principal(Role.USER, "alice")
    with pytest.raises(NotAuthenticated):
        await auth.principal({"apikey": "service-key", "authorization": "Basic abc"})


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": ""},
        {"authorization": "Bearer "},
        {"apikey": ""},
        bearer("service-keyx"),
        bearer("a.b.c"),
        bearer("x" * 9000),
        signed(exp=int(time.time()) - 60),
        signed(exp=None),
        signed(aud=None),
        signed(aud="somebody-else"),
        signed(sub=None),
        signed(sub=""),
        signed(sub="x" * 201),
        signed(role="postgres"),
        signed(nbf=int(time.time()) + 600),
        signed(key="t" * 64),
        signed(algorithm="HS512"),
    ],
)
async def test_what_is_not_a_valid_token_is_refused(headers: dict[str, str]) -> None:
    with pytest.raises(NotAuthenticated):
        await Authenticator(settings()).principal(headers)


async def test_the_issuer_is_checked_where_one_is_named() -> None:
    auth = Authenticator(settings(jwt_issuer="https://id.example"))
    assert (await auth.principal(signed(iss="https://id.example"))).subject == "alice"
    for issuer in (None, "https://evil.example"):
        with pytest.raises(NotAuthenticated):
            await auth.principal(signed(iss=issuer))


def unsigned(algorithm: str) -> str:
    parts = [
        base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()
        for part in ({"alg": algorithm, "typ": "JWT"}, claims())
    ]
    return ".".join([*parts, ""])


@pytest.mark.parametrize("algorithm", ["none", "None", "NONE", "nOnE"])
async def test_an_unsigned_token_is_refused(algorithm: str) -> None:
    with pytest.raises(NotAuthenticated):
        await Authenticator(settings()).principal(bearer(unsigned(algorithm)))


async def test_a_public_key_is_never_taken_for_a_shared_secret() -> None:
    keys = Keys(one=RSA_KEY)
    pem = RSA_KEY.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    forged = _hs256_with(pem)
    only_public = settings(jwt_secret=None, jwt_jwks_url="https://id.example/keys")
    both = settings(jwt_jwks_url="https://id.example/keys")
    for chosen in (only_public, both):
        with pytest.raises(NotAuthenticated):
            await Authenticator(chosen, KeySet(keys.read)).principal(bearer(forged))


def _hs256_with(key: bytes) -> str:
    """Sign by hand: the library itself refuses to sign with a public key."""
    head = unsigned("HS256").rstrip(".")
    digest = hmac.digest(key, head.encode(), "sha256")
    return f"{head}.{base64.urlsafe_b64encode(digest).rstrip(b'=').decode()}"


async def test_tokens_signed_by_a_published_key_are_accepted() -> None:
    keys = Keys(one=EC_KEY, two=RSA_KEY)
    auth = Authenticator(
        settings(jwt_secret=None, jwt_jwks_url="https://id.example/keys"), KeySet(keys.read)
    )
    assert (await auth.principal(by_key("one", EC_KEY))).subject == "alice"
    assert (await auth.principal(by_key("two", RSA_KEY, "RS256"))).subject == "alice"
    assert keys.reads == 1
    for headers in (
        by_key("one", OTHER_KEY),
        by_key("two", EC_KEY),
        by_key("three", EC_KEY),
        signed(),
    ):
        with pytest.raises(NotAuthenticated):
            await auth.principal(headers)


async def test_a_rotated_key_is_found_and_unknown_ones_do_not_cause_a_flood_of_reads() -> None:
    now = [0.0]
    keys = Keys(one=EC_KEY)
    source = KeySet(keys.read, clock=lambda: now[0])
    auth = Authenticator(settings(jwt_secret=None, jwt_jwks_url="https://id.example/k"), source)
    await auth.principal(by_key("one", EC_KEY))
    keys.keys = {"two": OTHER_KEY}
    now[0] += REFRESH_PAUSE_S + 1
    assert (await auth.principal(by_key("two", OTHER_KEY))).subject == "alice"
    for _ in range(20):
        with pytest.raises(NotAuthenticated):
            await auth.principal(by_key("nobody", OTHER_KEY))
    assert keys.reads == 2


async def test_known_keys_outlive_an_unreachable_source() -> None:
    now = [0.0]
    keys = Keys(one=EC_KEY)
    source = KeySet(keys.read, clock=lambda: now[0])
    auth = Authenticator(settings(jwt_secret=None, jwt_jwks_url="https://id.example/k"), source)
    await auth.principal(by_key("one", EC_KEY))
    keys.broken = True
    now[0] += 10_000
    assert (await auth.principal(by_key("one", EC_KEY))).subject == "alice"


def test_only_a_service_names_another_user() -> None:
    auth = Authenticator(settings())
    user = Principal(Role.USER, "alice")
    assert auth.acting_for(user, None) == "alice"
    assert auth.acting_for(user, "alice") == "alice"
    with pytest.raises(NotAllowed):
        auth.acting_for(user, "bob")
    assert auth.acting_for(Principal(Role.SERVICE), "bob") == "bob"
    with pytest.raises(NotAllowed):
        auth.acting_for(Principal(Role.SERVICE), None)


def test_an_anonymous_caller_claims_only_under_the_demonstration_switch() -> None:
    anonymous = Principal(Role.ANONYMOUS)
    with pytest.raises(NotAllowed):
        Authenticator(settings()).acting_for(anonymous, "user_42")
    switched = Authenticator(settings(demo_anonymous_claims=True))
    assert switched.acting_for(anonymous, "user_42") == "user_42"


async def test_the_keys_of_worker_and_operator_open_one_door_each() -> None:
    auth = Authenticator(settings())
    await auth.require_worker(bearer("worker-key"))
    await auth.require_admin(bearer("admin-key"))
    for require in (auth.require_worker, auth.require_admin, auth.require_service):
        await require(bearer("service-key"))
        with pytest.raises(NotAllowed):
            await require(signed())
        with pytest.raises(NotAllowed):
            await require({"apikey": "anon-key"})
    with pytest.raises(NotAuthenticated):
        await auth.require_worker(bearer("admin-key"))
    with pytest.raises(NotAuthenticated):
        await auth.require_admin(bearer("worker-key"))


async def test_an_unset_key_opens_nothing() -> None:
    auth = Authenticator(with_values(Settings(), jwt_secret=Secret(SECRET)))
    for headers in ({}, {"apikey": ""}, bearer("None")):
        with pytest.raises(NotAuthenticated):
            await auth.require_admin(headers)
