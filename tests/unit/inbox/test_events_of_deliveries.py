"""What a genuine delivery tells: events with ids, batches split, nothing lost, handshakes."""

import json
from typing import Any

import pytest
from tests.support.providers import CASES, Case

from penstock.inbox.providers.documents import EVENTS_MAX, content_id
from penstock.inbox.providers.scheme import Headers, InboundEvent, Reply, Request, Verified
from penstock.kernel.secrets import Secret

JSON = {"content-type": "application/json"}
FORM = {"content-type": "application/x-www-form-urlencoded"}


def read(name: str, body: bytes, headers: dict[str, str] | None = None) -> Verified:
    return CASES[name].scheme.read(Request(body, Headers.of(headers or JSON)))


def one(name: str, body: bytes, headers: dict[str, str] | None = None) -> InboundEvent:
    (event,) = read(name, body, headers).events
    return event


def whatsapp(*changes: object, entry: str = "E1") -> bytes:
    return json.dumps({"object": "w", "entry": [{"id": entry, "changes": list(changes)}]}).encode()


def messages_change(**value: object) -> dict[str, Any]:
    return {"field": "messages", "value": {"metadata": {"phone_number_id": "1"}, **value}}


def test_whatsapp_splits_a_batch_and_loses_no_malformed_member() -> None:
    statuses: list[object] = [{"id": f"wamid.{n}", "status": "sent"} for n in range(1000)]
    statuses[500] = {"status": "sent"}
    events = read("whatsapp", whatsapp(messages_change(statuses=statuses))).events
    assert len(events) == 1000
    assert len({event.event_id for event in events}) == 1000
    assert events[0].event_id == "wamid.0:sent"
    assert [n for n, event in enumerate(events) if event.payload is None] == [500]
    assert b'"status":{"status": "sent"}' in events[500].raw


@pytest.mark.parametrize(
    "member", [7, None, "x", [], {}, {"id": ""}, {"id": 5}, {"id": "a", "type": 1}]
)
def test_whatsapp_keeps_whatever_stands_for_a_message(member: object) -> None:
    body = whatsapp(messages_change(messages=[{"id": "wamid.1", "type": "text"}, member]))
    good, bad = read("whatsapp", body).events
    assert (good.event_id, good.event_type) == ("wamid.1", "message.text")
    assert bad.payload is None
    assert bad.event_id == content_id(bad.raw)


def test_whatsapp_gives_each_message_its_own_contact_and_bytes() -> None:
    contacts = [{"wa_id": str(n), "profile": {"name": f"n{n}"}} for n in range(100)]
    messages = [{"id": f"wamid.{n}", "from": str(n), "type": "text"} for n in range(100)]
    body = whatsapp(messages_change(contacts=contacts, messages=messages))
    events = read("whatsapp", body).events
    assert sum(len(event.raw) for event in events) < 4 * len(body)
    told = json.loads(events[42].payload or "")
    assert told["contacts"] == [contacts[42]]
    assert told["message"] == messages[42]
    assert (told["entry"], told["field"], told["metadata"]) == (
        "E1",
        "messages",
        {"phone_number_id": "1"},
    )


def test_whatsapp_statuses_of_one_message_are_different_events() -> None:
    statuses = [{"id": "wamid.1", "status": word} for word in ("sent", "delivered", "read")]
    events = read("whatsapp", whatsapp(messages_change(statuses=statuses))).events
    assert [event.event_id for event in events] == [
        "wamid.1:sent",
        "wamid.1:delivered",
        "wamid.1:read",
    ]


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b'{"entry":7}',
        b'{"entry":[]}',
        b'{"entry":[7]}',
        b'{"entry":[{"id":"E","changes":[7]}]}',
        b'{"entry":[{"id":"E","changes":[{"field":"messages","value":{"messages":7}}]}]}',
        b'{"entry":[{"id":"E","changes":[]}]}',
    ],
)
def test_whatsapp_of_another_shape_is_one_dead_event(body: bytes) -> None:
    event = one("whatsapp", body)
    assert event.payload is None
    assert event.event_id.startswith("sha256:")


def test_whatsapp_changes_of_other_kinds_are_events_too() -> None:
    change = {"field": "account_update", "value": {"event": "VERIFIED"}}
    event = one("whatsapp", whatsapp(change))
    assert event.event_type == "account_update"
    assert json.loads(event.payload or "")["value"] == {"event": "VERIFIED"}
    other = one("whatsapp", whatsapp(change, entry="E2"))
    assert other.event_id != event.event_id


def test_more_events_than_can_be_meant_are_one_dead_event() -> None:
    statuses = [{"id": str(n), "status": "sent"} for n in range(EVENTS_MAX + 1)]
    body = whatsapp(messages_change(statuses=statuses))
    assert one("whatsapp", body).raw == body


def handshake(query: str, *tokens: str, method: str = "GET") -> Reply | None:
    asked = Request(b"", Headers.of({}), method, query)
    return CASES["whatsapp"].scheme.handshake(asked, [Secret(token) for token in tokens])


def test_whatsapps_handshake_wants_the_token() -> None:
    query = "hub.mode=subscribe&hub.verify_token=mine&hub.challenge=1158201444"
    assert handshake(query, "other", "mine") == Reply(b"1158201444")
    assert handshake(query, "other") is None
    assert handshake(query) is None
    assert handshake(query, "mine", method="POST") is None
    assert handshake(query.replace("subscribe", "x"), "mine") is None
    assert handshake(query.replace("1158201444", "%C3%BC"), "mine") is None
    assert handshake(query.replace("1158201444", "1" * 201), "mine") is None
    assert handshake("hub.verify_token=mine", "mine") is None


def test_slacks_verification_is_answered_and_not_an_event() -> None:
    body = b'{"type":"url_verification","challenge":"3eZbrw1aBm2rZgRN","token":"x"}'
    assert read("slack", body) == Verified(reply=Reply(b"3eZbrw1aBm2rZgRN"))
    said = b'{"event_id":"Ev1","event":{"type":"message","text":"url_verification"}}'
    assert one("slack", said).event_id == "Ev1"


def test_slacks_forms_are_events() -> None:
    command = one("slack", b"command=%2Fweather&text=94070&trigger_id=13345224609", FORM)
    assert (command.event_id, command.event_type) == ("13345224609", "command")
    body = b"payload=%7B%22type%22%3A%22block_actions%22%2C%22trigger_id%22%3A%22T9%22%7D"
    pressed = one("slack", body, FORM)
    assert (pressed.event_id, pressed.event_type) == ("T9", "block_actions")
    assert json.loads(pressed.payload or "")["payload"]["trigger_id"] == "T9"
    for broken in (b"payload=%7B", b"a=%ff", b"a=%00", b"payload=7"):
        assert one("slack", broken, FORM).payload is None


def test_github_pings_are_answered_and_not_events() -> None:
    assert read("github", b'{"zen":"x"}', {"x-github-event": "ping"}).reply == Reply(b"pong")


def test_github_names_events_by_header_or_by_body() -> None:
    headers = {"x-github-event": "pull_request", "x-github-delivery": "d-1"}
    event = one("github", b'{"action":"opened"}', headers)
    assert (event.event_id, event.event_type) == ("d-1", "pull_request.opened")
    assert one("github", b"{}", {"x-github-event": "push"}).event_id == content_id(b"{}")
    by_body = Case("github", "s", "", {"event_id": "body"}).scheme
    (event,) = by_body.read(Request(b"{}", Headers.of(headers))).events
    assert event.event_id == content_id(b"{}")


def test_shopify_names_events_by_its_headers() -> None:
    headers = {"x-shopify-topic": "orders/paid", "x-shopify-webhook-id": "w-1"}
    event = one("shopify", b'{"id":1}', headers)
    assert (event.event_id, event.event_type) == ("w-1", "orders.paid")


@pytest.mark.parametrize(
    ("body", "event_id", "event_type"),
    [
        (b"MessageSid=SM1&MessageStatus=sent", "SM1:sent", "message.sent"),
        (b"MessageSid=SM1&SmsStatus=received&Body=hi", "SM1:received", "message.received"),
        (b"CallSid=CA1&CallStatus=ringing&SequenceNumber=2", "CA1:ringing:2", "call.ringing"),
        (b"CallSid=CA1&CallStatus=completed", "CA1:completed", "call.completed"),
        (b"Other=1", content_id(b"Other=1"), "form"),
    ],
)
def test_twilios_forms_are_named_by_sid_and_status(
    body: bytes, event_id: str, event_type: str
) -> None:
    event = one("twilio", body, FORM)
    assert (event.event_id, event.event_type) == (event_id, event_type)


@pytest.mark.parametrize(
    "body", [b"MessageSid=%00&MessageStatus=x", b"a=%ff", b"&".join([b"a"] * 2000)]
)
def test_a_form_that_cannot_be_held_is_dead_at_once(body: bytes) -> None:
    assert one("twilio", body, FORM).payload is None


@pytest.mark.parametrize("identity", ["null", '""', "1.5", "true", "[]", '"\\u0000"'])
def test_an_event_without_a_usable_id_is_dead_at_once(identity: str) -> None:
    body = f'{{"id":{identity},"type":"t"}}'.encode()
    event = one("stripe", body)
    assert (event.event_id, event.payload) == (content_id(body), None)


def test_ids_are_bounded_and_numbers_are_ids() -> None:
    assert one("stripe", b'{"id":42}').event_id == "42"
    long = one("stripe", b'{"id":"%s"}' % (b"x" * 300))
    assert long.event_id == content_id(b"x" * 300)
    assert long.payload is not None


def test_a_generic_sender_is_read_by_path() -> None:
    case = Case("hmac", "s", "", {"id_path": "meta.0.key", "type_path": "meta.0.kind"})
    body = b'{"meta":[{"key":"k1","kind":"made"}]}'
    (event,) = case.scheme.read(Request(body, Headers.of(JSON))).events
    assert (event.event_id, event.event_type) == ("k1", "made")
    for other in (b'{"meta":[]}', b'{"meta":{"1":2}}', b"{}"):
        (event,) = case.scheme.read(Request(other, Headers.of(JSON))).events
        assert event.payload is None
