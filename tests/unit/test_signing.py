"""Signed requests, checked by what the providers document."""

import base64
import hashlib
import hmac
from datetime import UTC, datetime

import pytest

from penstock.kernel.errors import WrongUsage
from penstock.testing import signed

AT = datetime(2026, 3, 1, tzinfo=UTC)
TIMESTAMP = str(int(AT.timestamp()))
BODY = b'{"id":"evt_1"}'


def mac(key: bytes, content: bytes) -> bytes:
    return hmac.new(key, content, hashlib.sha256).digest()


def test_github_is_the_documented_example() -> None:
    headers, body = signed("github", "It's a Secret to Everybody", b"Hello, World!")
    expected = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    assert headers["x-hub-signature-256"] == expected
    assert body == b"Hello, World!"


def test_slack_is_the_documented_example() -> None:
    secret = "8f742231b10e8888abcd99yyyzzz85a5"
    content = (
        b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow"
        b"&channel_id=G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner"
        b"&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands"
        b"%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN"
        b"&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
    )
    headers, _ = signed("slack", secret, content, at=datetime.fromtimestamp(1531420618, UTC))
    expected = "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"
    assert headers["x-slack-signature"] == expected


def test_standard_webhooks_is_the_documented_form() -> None:
    headers, body = signed(
        "standardwebhooks", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", BODY, at=AT
    )
    key = base64.b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    content = f"{headers['webhook-id']}.{TIMESTAMP}.".encode() + body
    assert headers["webhook-signature"] == "v1," + base64.b64encode(mac(key, content)).decode()
    assert headers["webhook-timestamp"] == TIMESTAMP


def test_stripe_signs_the_timestamp_and_the_body() -> None:
    headers, _ = signed("stripe", "whsec_test", BODY, at=AT)
    expected = mac(b"whsec_test", f"{TIMESTAMP}.".encode() + BODY).hex()
    assert headers["stripe-signature"] == f"t={TIMESTAMP},v1={expected}"


def test_the_others_sign_the_body() -> None:
    expected = mac(b"s", BODY)
    shopify = signed("shopify", "s", BODY)[0]["x-shopify-hmac-sha256"]
    assert base64.b64decode(shopify) == expected
    assert signed("whatsapp", "s", BODY)[0]["x-hub-signature-256"] == f"sha256={expected.hex()}"
    assert signed("hmac", "s", BODY)[0]["x-signature"] == f"sha256={expected.hex()}"


def test_a_redelivery_has_the_same_id() -> None:
    first, again = signed("github", "s", BODY)[0], signed("github", "s", BODY)[0]
    assert first["x-github-delivery"] == again["x-github-delivery"]
    assert signed("github", "s", b"{}")[0]["x-github-delivery"] != first["x-github-delivery"]


def test_an_unknown_provider_is_an_error_that_lists_the_known() -> None:
    with pytest.raises(WrongUsage, match="stripe"):
        signed("nobody", "s", BODY)
