"""Every scheme has a page, and the sample on it verifies as the page says."""

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from penstock.inbox.providers import PROVIDERS, Provider, provider
from penstock.inbox.providers.scheme import Headers, Rejected, Request, Verified
from penstock.kernel.secrets import Secret

PAGES = Path(__file__).parents[2] / "docs" / "integrations"
FILES = {"standardwebhooks": "standard-webhooks", "hmac": "generic"}
SECTIONS = [
    "Headers",
    "Event id and type",
    "Verification",
    "Replays",
    "Idempotency",
    "Retries",
    "Sample",
]


@dataclass(frozen=True)
class Page:
    """What a page says."""

    text: str

    def told(self, name: str) -> str:
        found = re.search(rf"^\| {name} \| `(.+)` \|$", self.text, re.MULTILINE)
        assert found, f"the page has no {name}"
        return found[1]

    def request(self) -> Request:
        (block,) = re.findall(r"```http\n(.*?)\n```", self.text, re.DOTALL)
        head, _, body = block.partition("\n\n")
        lines = [line.partition(": ") for line in head.splitlines()[1:]]
        return Request(body.encode(), Headers.of({name: value for name, _, value in lines}))


def page_of(name: str) -> Page:
    return Page((PAGES / f"{FILES.get(name, name)}.md").read_text("utf-8"))


def scheme_of(name: str, page: Page) -> Provider:
    url = re.search(r'"public_url": "([^"]+)"', page.text)
    return provider(name, {"public_url": url[1]} if url else None)


def test_every_scheme_has_a_page_and_no_page_is_left_over() -> None:
    assert {path.stem for path in PAGES.glob("*.md")} == {
        FILES.get(name, name) for name in PROVIDERS
    }


@pytest.mark.parametrize("name", PROVIDERS)
def test_a_page_has_every_section(name: str) -> None:
    assert re.findall(r"^## (.+)$", page_of(name).text, re.MULTILINE) == SECTIONS


@pytest.mark.parametrize("name", PROVIDERS)
def test_the_sample_verifies_and_is_named_as_the_page_says(name: str) -> None:
    page = page_of(name)
    secrets, now_s = [Secret(page.told("secret"))], int(page.told("sent at"))
    scheme, request = scheme_of(name, page), page.request()
    verdict = scheme.verify(request, secrets, now_s=now_s)
    assert isinstance(verdict, Verified)
    (event,) = verdict.events
    assert (event.event_id, event.event_type) == (page.told("event id"), page.told("event type"))
    changed = Request(request.body + b"x", request.headers)
    assert isinstance(scheme.verify(changed, secrets, now_s=now_s), Rejected)


@pytest.mark.parametrize("name", PROVIDERS)
def test_the_page_says_plainly_whether_a_time_is_signed(name: str) -> None:
    page = page_of(name)
    scheme = scheme_of(name, page)
    late = scheme.verify(
        page.request(), [Secret(page.told("secret"))], now_s=int(page.told("sent at")) + 301
    )
    assert isinstance(late, Rejected) is scheme.timestamped
    assert ("only dedupe protects" in page.text) is not scheme.timestamped
    assert f'"timestamp_signed": {str(scheme.timestamped).lower()}' in page.text


@pytest.mark.parametrize("name", PROVIDERS)
def test_a_page_says_how_to_add_the_source_with_the_command(name: str) -> None:
    text = page_of(name).text
    (source,) = re.findall(rf"put_source\(\n    '{name}', '{name}', array\['(env:\w+)'\]", text)
    assert f"penstock source add {name} --provider {name} --secret {source}" in text
