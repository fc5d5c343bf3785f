"""Who is calling. Identity comes from a verified token or a configured key, never a parameter."""

import hmac
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import jwt
import msgspec

from penstock.api.hs256 import UsualClaims, prepared, usual_claims
from penstock.api.keys import KeySource, key_source
from penstock.kernel.http_errors import NotAllowed, NotAuthenticated
from penstock.kernel.secrets import Secret
from penstock.kernel.settings import Settings
from penstock.kernel.settings.table import SYMMETRIC

TOKEN_LENGTH_MAX = 8192
SUBJECT_LENGTH_MAX = 200
CLOCK_LEEWAY_S = 10


class Role(StrEnum):
    """What a caller is, by the names that Supabase gives them."""

    USER = "authenticated"
    SERVICE = "service_role"
    ANONYMOUS = "anon"


class Principal(msgspec.Struct, frozen=True):
    """A verified caller; `subject` is the user, None for a service or an anonymous one."""

    role: Role
    subject: str | None = None


SERVICE = Principal(Role.SERVICE)
ANONYMOUS = Principal(Role.ANONYMOUS)

Headers = Mapping[str, str]


class Authenticator:
    """Turns request headers (lower-case names) into a principal."""

    def __init__(self, settings: Settings, keys: KeySource | None = None) -> None:
        self._settings = settings
        self._algorithms = frozenset(settings.accepted_algorithms())
        self._keys = keys if keys is not None else key_source(settings)
        self._shared_key: hmac.HMAC | None = None
        if settings.jwt_secret is not None and "HS256" in self._algorithms:
            self._shared_key = prepared(settings.jwt_secret.reveal().encode())

    async def principal(self, headers: Headers) -> Principal:
        """The caller; `Authorization` goes before `apikey`. Raises NotAuthenticated."""
        token = credential(headers)
        if token is None:
            raise NotAuthenticated("there is no bearer token")
        if _is(self._settings.service_role_key, token):
            return SERVICE
        if _is(self._settings.anon_key, token):
            return ANONYMOUS
        usual = self._usual_claims(token)
        if usual is not None:
            return _principal_of(usual.role, usual.sub)
        claims = await self._claims(token)
        return _principal_of(claims.get("role", Role.USER), claims.get("sub"))

    def quick_principal(self, headers: Headers) -> Principal | None:
        """The caller where no key has to be fetched; None where `principal` must decide."""
        token = credential(headers)
        claims = None if token is None else self._usual_claims(token)
        return None if claims is None else _principal_of(claims.role, claims.sub)

    def acting_for(self, principal: Principal, named: str | None) -> str:
        """The user a claim is made for; only a service names somebody else. Raises NotAllowed."""
        match principal.role:
            case Role.SERVICE:
                user = named or principal.subject
            case Role.USER:
                if named not in (None, principal.subject):
                    raise NotAllowed("this token does not permit a claim for another user")
                user = principal.subject
            case Role.ANONYMOUS:
                if not self._settings.demo_anonymous_claims:
                    raise NotAllowed("an anonymous caller may not claim")
                user = named
        if user is None:
            raise NotAllowed("the claim names no user")
        return user

    async def require_service(self, headers: Headers) -> None:
        """Let a trusted back end pass; raises NotAuthenticated or NotAllowed."""
        if (await self.principal(headers)).role is not Role.SERVICE:
            raise NotAllowed("this needs the service role")

    async def require_worker(self, headers: Headers) -> None:
        """Let those pass who may trigger work: the worker key or the service role."""
        await self._require_key(self._settings.worker_key, headers)

    async def require_admin(self, headers: Headers) -> None:
        """Let operators pass: the admin key or the service role."""
        await self._require_key(self._settings.admin_key, headers)

    def bears(self, key: Secret | None, headers: Headers) -> bool:
        """Whether the caller shows this key, in constant time; an unset key nobody shows."""
        return _is(key, credential(headers) or "")

    async def _require_key(self, key: Secret | None, headers: Headers) -> None:
        if not self.bears(key, headers):
            await self.require_service(headers)

    async def _claims(self, token: str) -> Mapping[str, Any]:
        if len(token) > TOKEN_LENGTH_MAX:
            raise NotAuthenticated("the token is too long")
        try:
            header = jwt.get_unverified_header(token)
            algorithm = header.get("alg")
            if not isinstance(algorithm, str) or algorithm not in self._algorithms:
                raise NotAuthenticated("the token's algorithm is not accepted")
            claims: dict[str, Any] = jwt.decode(
                token,
                await self._key(algorithm, header.get("kid")),
                algorithms=[algorithm],
                audience=self._settings.jwt_audience,
                issuer=self._settings.jwt_issuer,
                leeway=CLOCK_LEEWAY_S,
                options={"require": ["exp", "aud"]},
            )
        except jwt.ExpiredSignatureError:
            raise NotAuthenticated("the token has expired") from None
        except (jwt.PyJWTError, ValueError):
            raise NotAuthenticated("the token is not valid") from None
        return claims

    def _usual_claims(self, token: str) -> UsualClaims | None:
        if self._shared_key is None or len(token) > TOKEN_LENGTH_MAX:
            return None
        return usual_claims(
            token,
            self._shared_key,
            audience=self._settings.jwt_audience,
            issuer=self._settings.jwt_issuer,
            leeway_s=CLOCK_LEEWAY_S,
        )

    async def _key(self, algorithm: str, key_id: object) -> Any:
        # The algorithm decides which kind of key is looked for, and the two kinds never mix: a
        # token cannot have a public key taken for a shared secret.
        if algorithm in SYMMETRIC:
            secret = self._settings.jwt_secret
            if secret is None:
                raise NotAuthenticated("the token's algorithm is not accepted")
            return secret.reveal()
        if self._keys is None or not isinstance(key_id, str | None):
            raise NotAuthenticated("the token is signed by an unknown key")
        return await self._keys.find(algorithm, key_id)


def credential(headers: Headers) -> str | None:
    """The bearer token, or the `apikey`; a header of another scheme counts as none at all."""
    authorization = headers.get("authorization")
    if authorization is None:
        return headers.get("apikey") or None
    scheme, _, token = authorization.partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None


def _is(key: Secret | None, candidate: str) -> bool:
    return key is not None and bool(key) and key.matches(candidate)


def _principal_of(claimed: Any, subject: object) -> Principal:
    try:
        role = Role(claimed)
    except ValueError:
        raise NotAuthenticated("the token's role is not known here") from None
    if role is Role.ANONYMOUS:
        return ANONYMOUS
    if subject is None and role is Role.SERVICE:
        return SERVICE
    if not isinstance(subject, str) or not 1 <= len(subject) <= SUBJECT_LENGTH_MAX:
        raise NotAuthenticated("the token names no user")
    return Principal(role, subject)
