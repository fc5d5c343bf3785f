"""Requests signed by the providers' own libraries, or by published examples, are believed."""

import base64
import hashlib
import hmac
import json
from datetime import UTC, datetime
from urllib.parse import urlencode

import pytest
import stripe
from slack_sdk.signature import SignatureVerifier
from standardwebhooks.webhooks import Webhook
from tests.support.providers import CASES, NOW_S, PUBLIC_URL, Case
from twilio.request_validator import RequestValidator

from penstock.inbox.providers.scheme import Headers, Reason, Rejected, Request, Verified

BODY = json.dumps({"id": "evt_1", "type": "thing.happened", "umlaut": "ü"}).encode()
FORM = {"content-type": "application/x-www-form-urlencoded"}


def request(body: bytes, headers: dict[str, str], query: str = "") -> Request:
    return Request(body, Headers.of(headers), query=query)


def test_stripes_own_library() -> None:
    case = CASES["stripe"]
    header = stripe.WebhookSignature.generate_signature_header(
        payload=BODY.decode(), secret=case.secret, timestamp=NOW_S
    )
    verdict = case.verify(request(BODY, {"stripe-signature": header}))
    assert isinstance(verdict, Verified)
    assert verdict.events[0].event_id == "evt_1"
    ours = case.scheme.sign(case.secret, BODY, at_s=NOW_S)["stripe-signature"]
    assert stripe.WebhookSignature.verify_header(BODY.decode(), ours, case.secret)


def test_stripe_with_several_versions_and_several_secrets_in_one_header() -> None:
    case = CASES["stripe"]
    code = case.scheme.sign(case.secret, BODY, at_s=NOW_S)["stripe-signature"].partition("v1=")[2]
    for header in (f"t={NOW_S},v0=abc,v1=00,v1={code}", f"v1={code},t={NOW_S}"):
        assert isinstance(case.verify(request(BODY, {"stripe-signature": header})), Verified)
    for header in (f"t={NOW_S},v0={code}", f"t={NOW_S},t={NOW_S},v1={code}", f"t={NOW_S}"):
        assert isinstance(case.verify(request(BODY, {"stripe-signature": header})), Rejected)


def twilio_request(fields: dict[str, str], url: str, query: str = "") -> Request:
    code = RequestValidator(CASES["twilio"].secret).compute_signature(url, fields)
    return request(urlencode(fields).encode(), {"x-twilio-signature": code, **FORM}, query)


FIELDS = {
    "MessageSid": "SM1",
    "MessageStatus": "delivered",
    "Body": "a+b & c=d ü %2B",
    "Empty": "",
    "To": "+15005550006",
}


def test_twilios_own_library() -> None:
    case = CASES["twilio"]
    verdict = case.verify(twilio_request(FIELDS, PUBLIC_URL))
    assert isinstance(verdict, Verified)
    (event,) = verdict.events
    assert (event.event_id, event.event_type) == ("SM1:delivered", "message.delivered")
    assert event.payload is not None
    assert json.loads(event.payload) == FIELDS
    ours = case.scheme.sign(case.secret, urlencode(FIELDS).encode(), at_s=0)
    validator = RequestValidator(case.secret)
    assert validator.validate(PUBLIC_URL, FIELDS, ours["x-twilio-signature"])


@pytest.mark.parametrize(
    ("signed_url", "query", "believed"),
    [
        (PUBLIC_URL, "", True),
        ("https://hooks.example.com:443/webhooks/twilio", "", True),
        (f"{PUBLIC_URL}?a=1&b=%20x", "a=1&b=%20x", True),
        (f"{PUBLIC_URL}?a=1", "", False),
        (PUBLIC_URL, "a=1", False),
        ("http://hooks.example.com/webhooks/twilio", "", False),
        ("https://10.0.0.7:8400/webhooks/twilio", "", False),
        ("https://hooks.example.com:8443/webhooks/twilio", "", False),
        (f"{PUBLIC_URL}/", "", False),
    ],
)
def test_twilio_is_verified_against_the_configured_address(
    signed_url: str, query: str, believed: bool
) -> None:
    # The Host header is what a proxy made of it, or what an attacker chose: it decides nothing.
    genuine = twilio_request(FIELDS, signed_url, query)
    proxied = Request(
        genuine.body, Headers([*genuine.headers, (b"host", b"10.0.0.7:8400")]), query=query
    )
    assert isinstance(CASES["twilio"].verify(proxied), Verified) is believed


@pytest.mark.parametrize("port", [":443", ""])
def test_twilio_knows_a_configured_default_port_with_and_without(port: str) -> None:
    case = Case("twilio", "12345", "", {"public_url": "https://hooks.example.com:443/x"})
    signed = twilio_request(FIELDS, f"https://hooks.example.com{port}/x")
    assert isinstance(case.verify(signed), Verified)


def twilio_json(body: bytes) -> tuple[str, dict[str, str]]:
    query = f"bodySHA256={hashlib.sha256(body).hexdigest()}"
    code = RequestValidator(CASES["twilio"].secret).compute_signature(f"{PUBLIC_URL}?{query}", {})
    return query, {"x-twilio-signature": code}


def test_twilio_binds_json_by_its_hash_in_the_address() -> None:
    case = CASES["twilio"]
    body = b'[{"id":"EV1","type":"com.twilio.a"},{"id":"EV2"},7]'
    query, signed = twilio_json(body)
    json_type = {"content-type": "application/json"}
    verdict = case.verify(request(body, {**signed, **json_type}, query))
    assert isinstance(verdict, Verified)
    assert [event.event_id for event in verdict.events][:2] == ["EV1", "EV2"]
    assert [event.payload is None for event in verdict.events] == [False, False, True]
    assert [event.raw for event in verdict.events][1:] == [b'{"id":"EV2"}', b"7"]
    # A captured signature covers an empty form too, if the hash of the body were not asked for.
    for other in (body + b" ", b"", b"a=b"):
        for kind in (json_type, FORM):
            refused = case.verify(request(other, {**signed, **kind}, query))
            assert refused == Rejected(Reason.SIGNATURE_INVALID)
    unbound = RequestValidator(case.secret).compute_signature(PUBLIC_URL, {})
    headers = {"x-twilio-signature": unbound, **json_type}
    assert case.verify(request(body, headers)) == Rejected(Reason.SIGNATURE_INVALID)


def test_standard_webhooks_own_library() -> None:
    case = CASES["standardwebhooks"]
    at = datetime.fromtimestamp(NOW_S, UTC)
    code = Webhook(case.secret).sign("msg_1", at, BODY.decode())
    for family in ("webhook", "svix"):
        headers = {
            f"{family}-id": "msg_1",
            f"{family}-timestamp": str(NOW_S),
            f"{family}-signature": f"v1a,ignored {code}",
        }
        verdict = case.verify(request(BODY, headers))
        assert isinstance(verdict, Verified)
        assert (verdict.events[0].event_id, verdict.events[0].event_type) == (
            "msg_1",
            "thing.happened",
        )
        renamed = {**headers, f"{family}-id": "msg_2"}
        assert case.verify(request(BODY, renamed)) == Rejected(Reason.SIGNATURE_INVALID)
    mixed = {"webhook-signature": code, "svix-id": "msg_1", "svix-timestamp": str(NOW_S)}
    assert isinstance(case.verify(request(BODY, mixed)), Rejected)


def test_slacks_own_library() -> None:
    case = CASES["slack"]
    code = SignatureVerifier(case.secret).generate_signature(timestamp=str(NOW_S), body=BODY)
    assert code is not None
    headers = {"x-slack-signature": code, "x-slack-request-timestamp": str(NOW_S)}
    assert isinstance(case.verify(request(BODY, headers)), Verified)


def test_githubs_published_example() -> None:
    code = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    verdict = CASES["github"].verify(request(b"Hello, World!", {"x-hub-signature-256": code}))
    assert isinstance(verdict, Verified)
    assert verdict.events[0].payload is None


def test_the_others_by_hand() -> None:
    body = b'{"id":"x","type":"y"}'
    for name, header in (("whatsapp", "x-hub-signature-256"), ("hmac", "x-signature")):
        case = CASES[name]
        code = hmac.new(case.secret.encode(), body, hashlib.sha256).hexdigest()
        assert isinstance(case.verify(request(body, {header: f"sha256={code}"})), Verified)
        for wrong in (code, f"sha256={code.upper()}", f"sha1={code}", f"sha256= {code}"):
            assert isinstance(case.verify(request(body, {header: wrong})), Rejected)
    shopify = CASES["shopify"]
    digest = hmac.new(shopify.secret.encode(), body, hashlib.sha256).digest()
    code = base64.b64encode(digest).decode()
    assert isinstance(shopify.verify(request(body, {"x-shopify-hmac-sha256": code})), Verified)
    daily = CASES["daily"]
    key = base64.b64decode(daily.secret)
    for stamp in (str(NOW_S), str(NOW_S * 1000)):
        digest = hmac.new(key, f"{stamp}.".encode() + body, hashlib.sha256).digest()
        headers = {
            "x-webhook-signature": base64.b64encode(digest).decode(),
            "x-webhook-timestamp": stamp,
        }
        assert isinstance(daily.verify(request(body, headers)), Verified)
