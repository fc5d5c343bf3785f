"""What holds for every scheme: only the exact bytes, a live secret and the present are believed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.providers import CASES, NOW_S, TIMED, Case, with_header

from penstock.inbox.providers import PROVIDERS, provider
from penstock.inbox.providers.documents import form_pairs
from penstock.inbox.providers.scheme import (
    CANDIDATES_MAX,
    Headers,
    Reason,
    Rejected,
    Request,
    Verified,
)
from penstock.kernel.errors import BadSetting, NotFound
from penstock.kernel.secrets import Secret

EVERY = [*CASES.values(), TIMED]
SIGNED_TIME = [case for case in EVERY if case.scheme.timestamped]


def ident(case: Case) -> str:
    return f"{case.name}{'-timed' if case is TIMED else ''}"


every = pytest.mark.parametrize("case", EVERY, ids=ident)
timed = pytest.mark.parametrize("case", SIGNED_TIME, ids=ident)


def header_of(case: Case) -> str:
    return case.scheme.headers_kept[0]


def signature_header(case: Case) -> str:
    names = [name for name, _ in case.request().headers]
    wanted = {"standardwebhooks": "webhook-signature"}.get(case.name, header_of(case))
    assert wanted.encode() in names
    return wanted


def test_every_scheme_of_the_registry_is_tested() -> None:
    assert set(CASES) == set(PROVIDERS)


@every
def test_a_genuine_delivery_is_believed_and_named(case: Case) -> None:
    verdict = case.verify(case.request())
    assert isinstance(verdict, Verified)
    (event,) = verdict.events
    assert event.event_id
    assert event.event_type != "unknown" or case is TIMED
    assert event.payload is not None
    again = case.verify(case.request())
    assert again == verdict


@every
def test_another_secret_is_not_believed(case: Case) -> None:
    forged = case.request(secret=case.other)
    assert case.verify(forged) == Rejected(Reason.SIGNATURE_INVALID)


@every
def test_both_secrets_are_believed_while_one_is_rotated(case: Case) -> None:
    for secret in (case.secret, case.other):
        request = case.request(secret=secret)
        assert isinstance(case.verify(request, case.secret, case.other), Verified)
        assert isinstance(case.verify(request, case.other, case.secret), Verified)


@every
def test_without_secrets_nobody_is_believed(case: Case) -> None:
    refused = case.scheme.verify(case.request(), [], now_s=NOW_S)
    assert refused == Rejected(Reason.SIGNATURE_INVALID)


@every
def test_a_missing_signature_is_refused(case: Case) -> None:
    request = with_header(case.request(), signature_header(case), None)
    assert case.verify(request) == Rejected(Reason.SIGNATURE_MISSING)


@every
def test_a_signature_that_stands_twice_is_refused(case: Case) -> None:
    request = case.request()
    name = signature_header(case).encode()
    (good,) = (pair for pair in request.headers if pair[0] == name)
    for second in (good, (name, b"anything")):
        doubled = Request(request.body, Headers([*request.headers, second]))
        assert case.verify(doubled) == Rejected(Reason.HEADER_MALFORMED)


@every
@pytest.mark.parametrize(
    "value", [b"\xff\xfe", "t=\uff11\uff12,v1=\uff41".encode(), b"a\x00b", b"\x01"]
)
def test_a_header_outside_ascii_is_refused_and_raises_nothing(case: Case, value: bytes) -> None:
    request = with_header(case.request(), signature_header(case), value)
    assert case.verify(request) == Rejected(Reason.HEADER_MALFORMED)


@every
def test_json_that_was_written_anew_is_refused(case: Case) -> None:
    request = case.request(b'{"id": 1, "type": "t"}')
    rewritten = Request(b'{"id":1,"type":"t"}', request.headers)
    if case.name == "twilio":
        request = case.request(b"MessageSid=SM1&MessageStatus=sent")
        rewritten = Request(b"MessageSid=SM1&MessageStatus=sent&x=", request.headers)
    assert isinstance(case.verify(request), Verified)
    assert case.verify(rewritten) == Rejected(Reason.SIGNATURE_INVALID)


@every
@given(data=st.data())
def test_any_changed_byte_of_the_body_is_refused(case: Case, data: st.DataObject) -> None:
    request = case.request()
    place = data.draw(st.integers(0, len(request.body) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda one: one != request.body[place]))
    body = request.body[:place] + bytes([byte]) + request.body[place + 1 :]
    if case.name == "twilio":
        # The fields are signed, not their spelling; and not where one field ends.
        flat = [b"".join(n + v for n, v in sorted(form_pairs(b))) for b in (request.body, body)]
        if flat[0] == flat[1]:
            return
    assert isinstance(case.verify(Request(body, request.headers)), Rejected)


@every
@given(data=st.data())
def test_any_changed_byte_of_the_signature_is_refused(case: Case, data: st.DataObject) -> None:
    request = case.request()
    name = signature_header(case)
    value = dict(request.headers)[name.encode()]
    place = data.draw(st.integers(0, len(value) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda one: one != value[place]))
    changed = value[:place] + bytes([byte]) + value[place + 1 :]
    assert isinstance(case.verify(with_header(request, name, changed)), Rejected)


@every
@given(value=st.binary(max_size=200))
def test_any_signature_at_all_raises_nothing(case: Case, value: bytes) -> None:
    request = with_header(case.request(), signature_header(case), value)
    assert isinstance(case.verify(request), Rejected)


@timed
@pytest.mark.parametrize("seconds", [-299, -1, 0, 1, 299])
def test_within_the_tolerance_a_delivery_is_believed(case: Case, seconds: int) -> None:
    assert isinstance(case.verify(case.request(at_s=NOW_S + seconds)), Verified)


@timed
@pytest.mark.parametrize("seconds", [-(10**9), -301, 301, 10**9])
def test_outside_the_tolerance_a_delivery_is_refused(case: Case, seconds: int) -> None:
    request = case.request(at_s=NOW_S + seconds)
    assert case.verify(request) == Rejected(Reason.TIMESTAMP_OUTSIDE)


@timed
@pytest.mark.parametrize("at", [10**30, -1])
def test_an_absurd_time_is_refused_though_it_is_signed(case: Case, at: int) -> None:
    assert case.verify(case.request(at_s=at)) == Rejected(Reason.TIMESTAMP_MALFORMED)


TIME_HEADERS = {
    "daily": "x-webhook-timestamp",
    "standardwebhooks": "webhook-timestamp",
    "slack": "x-slack-request-timestamp",
    "hmac": "x-sent-at",
}


@timed
@pytest.mark.parametrize("text", ["", "now", "1_772", "+1772323200", " 1772323200", "1e9", "0x1"])
def test_a_time_that_is_no_number_is_refused(case: Case, text: str) -> None:
    if case.name == "stripe":
        request = with_header(case.request(), "stripe-signature", f"t={text},v1=00".encode())
    else:
        request = with_header(case.request(), TIME_HEADERS[case.name], text.encode())
    assert case.verify(request) == Rejected(Reason.TIMESTAMP_MALFORMED)


@timed
def test_a_missing_time_is_refused(case: Case) -> None:
    name = TIME_HEADERS.get(case.name)
    request = (
        with_header(case.request(), name, None)
        if name
        else with_header(case.request(), "stripe-signature", b"v1=00")
    )
    assert case.verify(request) == Rejected(Reason.TIMESTAMP_MALFORMED)


def test_the_schemes_without_a_signed_time_are_known() -> None:
    untimed = {case.name for case in CASES.values() if not case.scheme.timestamped}
    assert untimed == {"twilio", "whatsapp", "github", "shopify", "hmac"}


def test_too_many_signatures_are_refused_before_they_cost() -> None:
    case = CASES["stripe"]
    many = ",".join(["v1=00"] * (CANDIDATES_MAX + 1))
    request = with_header(case.request(), "stripe-signature", f"t={NOW_S},{many}".encode())
    assert case.verify(request) == Rejected(Reason.HEADER_MALFORMED)


def test_an_unknown_scheme_or_option_is_an_error() -> None:
    with pytest.raises(NotFound, match="stripe"):
        provider("nobody")
    with pytest.raises(BadSetting, match="colour"):
        provider("stripe", {"colour": "red"})


@pytest.mark.parametrize(
    "options",
    [
        {"signed": "{timestamp}"},
        {"signed": "{timestamp}.{body}"},
        {"timestamp_header": "x-at"},
        {"signed": "{id}.{body}"},
        {"hash": "md5"},
    ],
)
def test_a_description_that_proves_nothing_is_an_error(options: dict[str, object]) -> None:
    with pytest.raises(BadSetting):
        provider("hmac", options)


@pytest.mark.parametrize(
    ("name", "secret"), [("daily", "not base64!"), ("standardwebhooks", "whsec_not base64!")]
)
def test_a_secret_that_is_not_base64_is_an_error_that_does_not_quote_it(
    name: str, secret: str
) -> None:
    with pytest.raises(BadSetting) as caught:
        provider(name).verify(CASES[name].request(), [Secret(secret)], now_s=NOW_S)
    assert "not base64!" not in str(caught.value)
