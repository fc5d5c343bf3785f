"""Settings that contradict each other stop the start: guessing which one was meant is worse."""

from collections.abc import Callable, Iterator
from itertools import combinations

from penstock.kernel.errors import BadSetting
from penstock.kernel.settings.table import ASYMMETRIC, SYMMETRIC, Settings

JWT_SECRET_BYTES_MIN = 32
PUBLIC_KEY_STARTS = ("-----BEGIN", "ssh-", "ecdsa-")


def check(settings: Settings) -> None:
    """Raise BadSetting with every contradiction found."""
    found = [sentence for rule in _RULES for sentence in rule(settings)]
    if found:
        raise BadSetting("; ".join(found), happened="settings contradict each other.")


def _token_keys(settings: Settings) -> Iterator[str]:
    has_public_keys = bool(settings.jwt_jwks_url or settings.jwt_jwks_file)
    named = settings.jwt_algorithms
    if settings.jwt_jwks_url and settings.jwt_jwks_file:
        yield "jwt_jwks_url and jwt_jwks_file are both set; keep one"
    if named and settings.jwt_secret and not set(named) & set(SYMMETRIC):
        yield "jwt_secret is set, but jwt_algorithms accepts only asymmetric ones"
    if named and not settings.jwt_secret and set(named) & set(SYMMETRIC):
        yield "jwt_algorithms accepts a symmetric one, but there is no jwt_secret"
    if named and has_public_keys and not set(named) & set(ASYMMETRIC):
        yield "public keys are set, but jwt_algorithms accepts only symmetric ones"
    if named and not has_public_keys and set(named) & set(ASYMMETRIC):
        yield "jwt_algorithms accepts an asymmetric one, but there are no public keys"
    secret = settings.jwt_secret
    if secret and secret.reveal().lstrip().startswith(PUBLIC_KEY_STARTS):
        yield "jwt_secret is a key of a pair, which others have; put public keys into jwt_jwks_file"
    if secret and len(secret.reveal().encode()) < JWT_SECRET_BYTES_MIN:
        yield f"jwt_secret is shorter than {JWT_SECRET_BYTES_MIN} bytes and could be guessed"


def _shared_keys(settings: Settings) -> Iterator[str]:
    names = ("anon_key", "service_role_key", "worker_key", "admin_key", "metrics_key", "jwt_secret")
    for one, other in combinations(names, 2):
        value = getattr(settings, one)
        if value is not None and value == getattr(settings, other):
            yield f"{one} and {other} are the same; each needs its own value"
    for name in names:
        if getattr(settings, name) in settings.outbox_secrets:
            yield f"{name} is also one of outbox_secrets; each needs its own value"


def _anonymous_claims(settings: Settings) -> Iterator[str]:
    if settings.demo_anonymous_claims and settings.anon_key is None:
        yield "demo_anonymous_claims is on, but there is no anon_key"


def _ports(settings: Settings) -> Iterator[str]:
    same_place = settings.host == settings.health_host and settings.port == settings.health_port
    if same_place and settings.port != 0:
        yield "port and health_port are the same"


def _databases(settings: Settings) -> Iterator[str]:
    if settings.direct_url and not settings.database_url:
        yield "direct_url is set, but there is no database_url"
    if settings.ledger_url and settings.ledger_url == settings.database_url:
        yield "ledger_url and database_url are the same database"
    if settings.direct_url and settings.pooler == "off":
        yield "direct_url is set although pooler is off; without a pooler it is not needed"


_RULES: tuple[Callable[[Settings], Iterator[str]], ...] = (
    _token_keys,
    _shared_keys,
    _anonymous_claims,
    _ports,
    _databases,
)
