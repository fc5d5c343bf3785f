"""The quick check accepts nothing that the library would refuse, and says the same of the rest."""

import json
import time
from typing import Any

import jwt
import msgspec
from hypothesis import given
from hypothesis import strategies as st

from penstock.api.hs256 import UsualClaims, prepared, usual_claims

SECRET = "s" * 64
NOW = int(time.time())

_times = st.sampled_from([None, NOW - 86400, NOW + 86400, "soon", True, 1e18])
_audiences = st.sampled_from([None, "authenticated", "other", ["authenticated"], 5])
_claims = st.fixed_dictionaries(
    {"exp": _times, "nbf": _times, "iat": _times, "aud": _audiences},
    optional={"iss": st.sampled_from(["us", "them"]), "sub": st.text(max_size=5)},
)


def _token(claims: dict[str, Any], secret: str, header: dict[str, Any]) -> str:
    body = {name: value for name, value in claims.items() if value is not None}
    return jwt.api_jws.PyJWS().encode(
        json.dumps(body).encode(), secret, algorithm="HS256", headers=header
    )


def _library(token: str, issuer: str | None) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = jwt.decode(
            token,
            SECRET,
            algorithms=["HS256"],
            audience="authenticated",
            issuer=issuer,
            leeway=10,
            options={"require": ["exp", "aud"]},
        )
    except jwt.PyJWTError:
        return None
    return found


KEY = prepared(SECRET.encode())


def _as_quick(claims: dict[str, Any] | None) -> UsualClaims | None:
    return None if claims is None else msgspec.convert(claims, UsualClaims)


def _quick(token: str, issuer: str | None) -> UsualClaims | None:
    return usual_claims(token, KEY, audience="authenticated", issuer=issuer, leeway_s=10)


@given(_claims, st.sampled_from([SECRET, "t" * 64]), st.sampled_from([None, "us"]))
def test_what_is_accepted_quickly_the_library_accepts_too(
    claims: dict[str, Any], secret: str, issuer: str | None
) -> None:
    token = _token(claims, secret, {})
    quick = _quick(token, issuer)
    assert quick is None or quick == _as_quick(_library(token, issuer))


def test_the_usual_token_takes_the_quick_way() -> None:
    claims = {"sub": "alice", "aud": "authenticated", "exp": NOW + 86400, "iat": NOW}
    assert _quick(jwt.encode(claims, SECRET, algorithm="HS256"), None) == _as_quick(claims)


@given(st.integers(0, 400), st.sampled_from("Aa0_-.=é"))
def test_a_token_with_another_character_anywhere_is_not_accepted(place: int, other: str) -> None:
    claims = {"sub": "alice", "aud": "authenticated", "exp": NOW + 86400}
    token = jwt.encode(claims, SECRET, algorithm="HS256")
    place %= len(token)
    if token[place] != other:
        assert _quick(token[:place] + other + token[place + 1 :], None) is None


def test_an_unusual_header_goes_the_long_way() -> None:
    claims = {"sub": "alice", "aud": "authenticated", "exp": NOW + 86400}
    for header in ({"kid": "1"}, {"crit": ["b64"], "b64": False}):
        assert _quick(_token(claims, SECRET, header), None) is None
