"""What an answer over HTTP means, and how messages are signed."""

import base64
from datetime import UTC, datetime, timedelta

import pytest

from penstock.kernel.errors import BadSetting
from penstock.kernel.http_errors import DownstreamFailed
from penstock.kernel.replies import Reply, verdict_of, verdict_of_failure
from penstock.kernel.secrets import Secret
from penstock.kernel.signing import signature_headers
from penstock.kernel.verdict import Done, Reject, Retry, Unknown

NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_2xx_is_done(status: int) -> None:
    assert isinstance(verdict_of(Reply(status)), Done)


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504, 599, 301, 302, 307, 308])
def test_what_may_pass_is_retried(status: int) -> None:
    verdict = verdict_of(Reply(status))
    assert verdict == Retry(None, code=f"HTTP_{status}")


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 410, 422])
def test_other_4xx_is_a_refusal_with_its_code(status: int) -> None:
    assert verdict_of(Reply(status)) == Reject(f"HTTP_{status}")


def test_409_is_done_because_the_key_is_constant_unless_told_otherwise() -> None:
    assert isinstance(verdict_of(Reply(409)), Done)
    assert verdict_of(Reply(409), duplicate_is_done=False) == Reject("HTTP_409")


@pytest.mark.parametrize(
    ("text", "wanted_s"),
    [
        ("7", 7.0),
        ("Fri, 01 May 2026 12:00:30 GMT", 30.0),
        ("Fri, 01 May 2026 11:00:00 GMT", 0.0),
        ("999999999999999999", 3600.0),
        ("Fri, 01 May 2036 12:00:30 GMT", 3600.0),
        ("soon", None),
        ("-5", None),
        ("1_0", None),
        ("\uff11\uff12", None),
        ("", None),
    ],
)
def test_retry_after_is_honoured_and_capped(text: str, wanted_s: float | None) -> None:
    verdict = verdict_of(Reply(503, {"retry-after": text}), now=NOW)
    assert isinstance(verdict, Retry)
    wanted = None if wanted_s is None else timedelta(seconds=wanted_s)
    assert verdict.after == wanted


def test_no_answer_after_sending_is_unknown_unless_the_receiver_honours_the_key() -> None:
    lost = DownstreamFailed("x", sent=True, kind="TIMEOUT")
    assert verdict_of_failure(lost, keyed=True) == Retry(code="TIMEOUT", reason="x")
    assert verdict_of_failure(lost, keyed=False) == Unknown("TIMEOUT")
    unsent = DownstreamFailed("x", sent=False, kind="NETWORK")
    assert verdict_of_failure(unsent, keyed=False) == Retry(code="NETWORK", reason="x")


def test_the_signature_is_the_one_of_the_standard() -> None:
    # The example of the Standard Webhooks specification.
    headers = signature_headers(
        [Secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")],
        message_id="msg_p5jXN8AQM9LWM0D4loKWxJek",
        timestamp_s=1614265330,
        body=b'{"test": 2432232314}',
    )
    assert headers == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


def test_two_secrets_give_two_signatures_and_none_gives_none() -> None:
    key = base64.b64encode(b"k" * 24).decode()
    both = signature_headers(
        [Secret(f"whsec_{key}"), Secret("plain-text-secret")],
        message_id="m",
        timestamp_s=1,
        body=b"",
    )
    assert len(both["webhook-signature"].split(" ")) == 2
    assert "webhook-signature" not in signature_headers([], message_id="m", timestamp_s=1, body=b"")


def test_a_broken_secret_is_named_as_such() -> None:
    with pytest.raises(BadSetting):
        signature_headers([Secret("whsec_%%%")], message_id="m", timestamp_s=1, body=b"")
