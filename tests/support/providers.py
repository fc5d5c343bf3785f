"""Every scheme with a secret, options and a sample, for tests that hold for all of them."""

from dataclasses import dataclass, field

from penstock.inbox.providers import Provider, provider
from penstock.inbox.providers.scheme import Headers, Rejected, Request, Verified
from penstock.kernel.secrets import Secret

NOW_S = 1_772_323_200
PUBLIC_URL = "https://hooks.example.com/webhooks/twilio"


@dataclass(frozen=True)
class Case:
    """A scheme as a source would configure it."""

    name: str
    secret: str
    other: str
    options: dict[str, object] = field(default_factory=dict)

    @property
    def scheme(self) -> Provider:
        return provider(self.name, self.options)

    def body(self, event_id: str = "evt_1") -> bytes:
        return self.scheme.sample(event_id, "")

    def request(
        self, body: bytes | None = None, *, secret: str | None = None, at_s: int = NOW_S
    ) -> Request:
        """A signed request; of the sample, by the right secret and now, unless told otherwise."""
        content = self.body() if body is None else body
        headers = self.scheme.sign(secret or self.secret, content, at_s=at_s)
        return Request(content, Headers.of({"content-type": "application/json", **headers}))

    def verify(self, request: Request, *secrets: str, now_s: float = NOW_S) -> Verified | Rejected:
        live = [Secret(text) for text in secrets or (self.secret,)]
        return self.scheme.verify(request, live, now_s=now_s)


CASES = {
    case.name: case
    for case in (
        Case("stripe", "whsec_first", "whsec_second"),
        Case("twilio", "12345", "54321", {"public_url": PUBLIC_URL}),
        Case("whatsapp", "app-secret", "other-app"),
        Case("daily", "aGVsbG8gd29ybGQgaGVsbG8gd29ybGQ=", "b3RoZXIgd29ybGQ="),
        Case("standardwebhooks", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_b3RoZXI="),
        Case("github", "It's a Secret to Everybody", "nobody's"),
        Case("shopify", "hush", "hash"),
        Case("slack", "8f742231b10e8888abcd99yyyzzz85a5", "other"),
        Case("hmac", "plain", "other"),
    )
}
TIMED = Case(
    "hmac",
    "6b6579",
    "6b6578",
    {
        "header": "X-Signed",
        "hash": "sha512",
        "encoding": "base64",
        "prefix": "v9:",
        "key_encoding": "hex",
        "timestamp_header": "X-Sent-At",
        "id_header": "X-Id",
        "type_header": "X-Type",
        "signed": "{id}|{timestamp}|{body}",
    },
)


def with_header(request: Request, name: str, value: bytes | None) -> Request:
    """The same request with one header replaced, or without it."""
    pairs = [pair for pair in request.headers if pair[0] != name.encode()]
    if value is not None:
        pairs.append((name.encode(), value))
    return Request(request.body, Headers(pairs), request.method, request.query)
