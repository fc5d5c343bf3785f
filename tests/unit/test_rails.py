"""What rails answer and what that means; instructions; the simulator's books; a rail over HTTP."""

from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from random import Random
from typing import Any, cast
from uuid import UUID, uuid4

import pytest
from tests.support.rails import IBAN, instruction

from penstock.kernel.addresses import AddressPolicy
from penstock.kernel.outgoing import CallLimits, Outgoing
from penstock.kernel.replies import Reply
from penstock.kernel.secrets import Secret
from penstock.kernel.verdict import Reject, Retry, Unknown
from penstock.payments.errors import PaymentRefused
from penstock.payments.http_rail import AskableHttpRail, HttpRail, HttpRailConfig
from penstock.payments.instruction import Instruction, stored_instruction
from penstock.payments.rails import CodeTable, NotSent, RailOutcome, Sent, reclassified
from penstock.payments.simulator import Faults, Simulator, SimulatorRail
from penstock.payments.simulator_server import serving

KEY = uuid4()
TABLE = CodeTable({"00": "OK", "91": "RETRY", "14": "REJECT", "96": "UNKNOWN"})


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        ("00", Sent("ref", "00")),
        ("91", Retry(timedelta(seconds=3), code="91")),
        ("14", Reject("14")),
        ("96", Unknown(code="96")),
        ("0", Unknown(code="0")),
        ("000", Unknown(code="000")),
        ("OK 00", Unknown(code="OK 00")),
        ("", Unknown(code="")),
    ],
)
def test_a_code_means_what_the_table_says_and_nothing_by_its_looks(
    code: str, outcome: RailOutcome
) -> None:
    assert TABLE.outcome(code, reference="ref", after=timedelta(seconds=3)) == outcome


def test_operators_may_reclassify_anything_but_a_payment_that_was_made() -> None:
    classes = TABLE.classes
    assert reclassified(Unknown(code="14"), classes) == Reject("14")
    assert reclassified(Reject("91"), classes) == Retry(code="91")
    assert reclassified(Retry(code="00"), classes) == Sent(None, "00")
    assert reclassified(Reject("77"), classes) == Reject("77")
    assert reclassified(Sent("r", "14"), classes) == Sent("r", "14")


@pytest.mark.parametrize(
    ("amount", "currency", "minor"),
    [
        (Decimal("10.50"), "EUR", 1050),
        (Decimal(7), "EUR", 700),
        (1050, "EUR", 1050),
        (Decimal(1050), "JPY", 1050),
        (Decimal("1.234"), "BHD", 1234),
        (Decimal("999999999999999.99"), "EUR", 99999999999999999),
    ],
)
def test_amounts_are_exact_in_minor_units_and_survive_being_stored(
    amount: Decimal | int, currency: str, minor: int
) -> None:
    made = instruction(amount=amount, currency=currency, details={"note": "May"})
    assert made.minor_units == minor
    back = stored_instruction(
        made.instruction_id, made.participant_id, rail=made.rail, payload=made.payload()
    )
    assert back == made


@pytest.mark.parametrize(
    "values",
    [
        {"amount": Decimal("NaN")},
        {"amount": Decimal("Infinity")},
        {"amount": Decimal("1e30")},
        {"amount": Decimal("1e-30")},
        {"amount": 10**18},
        {"amount": True},
        {"amount": "10"},
        {"amount": Decimal("10.5"), "currency": "JPY"},
        {"currency": "Eur"},
        {"currency": "E1R"},
        {"details": {"x": object()}},
    ],
)
def test_what_is_no_payment_has_no_payload(values: dict[str, Any]) -> None:
    with pytest.raises(PaymentRefused):
        instruction("p1", **values).payload()


@pytest.mark.parametrize(
    "payload",
    [
        "[]",
        "{",
        '{"amount": 1.0, "currency": "EUR", "destination": "x"}',
        '{"amount": "1e2", "currency": "EUR", "destination": "x"}',
        '{"amount": "-1", "currency": "EUR", "destination": "x"}',
        '{"amount": "1", "currency": 978, "destination": "x"}',
        '{"amount": "1", "currency": "EUR"}',
        '{"amount": "1", "currency": "EUR", "destination": null}',
        '{"amount": true, "currency": "EUR", "destination": "x"}',
        '{"amount": "1", "currency": "XXX", "destination": "x"}',
        '{"amount": "1", "currency": ["EUR"], "destination": "x"}',
        '{"amount": "1", "currency": "EUR", "destination": ["x"]}',
        '{"amount": "1", "currency": "EUR", "destination": {"iban": " "}}',
    ],
)
def test_a_stored_payload_is_checked_again_before_it_is_sent(payload: str) -> None:
    with pytest.raises(PaymentRefused):
        stored_instruction("i", "p", rail="ach", payload=payload)


async def test_the_simulator_pays_once_per_key_while_it_remembers_it() -> None:
    now = 0.0
    simulator = Simulator(window_s=10, clock=lambda: now)
    rail = SimulatorRail(simulator)
    assert await rail.dispatch(instruction(), KEY) == Sent("sim-1", "PAID")
    now = 9.9
    assert await rail.dispatch(instruction(), KEY) == Sent("sim-1", "PAID")
    assert simulator.doubles() == {}
    now = 10.0
    assert await rail.dispatch(instruction(), KEY) == Sent("sim-2", "PAID")
    assert simulator.doubles() == {KEY: 2}


async def test_a_simulator_without_keys_pays_every_time() -> None:
    simulator = Simulator(keyed=False)
    for _ in range(3):
        await SimulatorRail(simulator).dispatch(instruction(), KEY)
    assert simulator.doubles() == {KEY: 3}


@pytest.mark.parametrize(
    ("fault", "outcome", "effects"),
    [
        ("busy", Retry(code="BUSY"), 0),
        ("refused", Reject("REFUSED"), 0),
        ("lost_before", Unknown("the connection broke", "LOST"), 0),
        ("lost_after", Unknown("the connection broke", "LOST"), 1),
        ("slow_before", Unknown("the connection broke", "LOST"), 0),
        ("slow_after", Sent("sim-1", "PAID"), 1),
    ],
)
async def test_faults_break_before_or_after_the_money_moved(
    fault: str, outcome: RailOutcome, effects: int
) -> None:
    simulator = Simulator(faults=Faults(slow_s=0.01), script=[fault])
    assert await SimulatorRail(simulator).dispatch(instruction(), KEY) == outcome
    assert len(simulator.effects) == effects
    simulator.script = ["unreachable"]
    with pytest.raises(NotSent):
        await SimulatorRail(simulator).dispatch(instruction(), KEY)


def test_chance_is_repeatable_and_as_large_as_it_says() -> None:
    faults = Faults(busy=0.25, lost_after=0.25)

    def drawn() -> list[str]:
        random = Random(7)
        return [faults.pick(random) for _ in range(2000)]

    assert drawn() == drawn()
    assert 400 < drawn().count("busy") < 600
    assert 400 < drawn().count("lost_after") < 600
    assert set(drawn()) == {"busy", "lost_after", ""}


def _outgoing(timeout_s: float = 5.0) -> Outgoing:
    policy = AddressPolicy.allowing(("127.0.0.1/32",))
    return Outgoing(policy, limits=CallLimits(timeout_s=timeout_s))


def _config(base: str) -> HttpRailConfig:
    return HttpRailConfig(
        url=f"{base}/transfers",
        codes={"BUSY": "RETRY", "REFUSED": "REJECT"},
        code_at=("error", "code"),
        authorization=Secret("Bearer key"),
        destination_keys=("iban",),
    )


@pytest.mark.parametrize(
    ("script", "check"),
    [
        ([], lambda o: o == Sent("sim-1", "HTTP_200")),
        (["busy"], lambda o: isinstance(o, Retry) and o.code == "BUSY"),
        (["refused"], lambda o: o == Reject("REFUSED")),
        (["lost_after"], lambda o: isinstance(o, Unknown) and o.code == "NETWORK"),
        (["lost_before"], lambda o: isinstance(o, Unknown) and o.code == "NETWORK"),
        (["slow_after"], lambda o: isinstance(o, Unknown) and o.code == "TIMEOUT"),
    ],
)
async def test_a_rail_over_http_reads_answers_by_its_table(
    script: list[str], check: Callable[[RailOutcome], bool]
) -> None:
    simulator = Simulator(script=list(script), faults=Faults(slow_s=2))
    outgoing = _outgoing(timeout_s=0.5)
    async with serving(simulator) as base:
        outcome = await HttpRail(_config(base), outgoing).dispatch(instruction(), KEY)
        await outgoing.close()
    assert check(outcome), outcome
    assert simulator.calls == [KEY], "the key is the payment's own"


class _Answering:
    """A client that has the given answer for everything."""

    def __init__(self, reply: Reply) -> None:
        self.reply = reply

    async def post(self, *_: object, **__: object) -> Reply:
        return self.reply


@pytest.mark.parametrize(
    ("status", "body", "outcome"),
    [
        (200, b'{"id": "r1"}', Sent("r1", "HTTP_200")),
        (200, b'{"id": "r1", "code": null}', Sent("r1", "HTTP_200")),
        (200, b'{"id": "r1", "code": ""}', Sent("r1", "HTTP_200")),
        (200, b" ", Sent(None, "HTTP_200")),
        (200, b'{"id": "r1", "code": 51}', Reject("51")),
        (200, b'{"id": "r1", "code": 0}', Sent("r1", "0")),
        (200, b'{"id": "r1", "code": 99}', Unknown(code="99")),
        (200, b'{"id": "r1", "code": false}', Unknown(code="false")),
        (200, b'{"id": "r1", "code": {"n": 51}}', Unknown(code="REPLY_UNREADABLE")),
        (200, b'{"code": 51.5}', Unknown(code="REPLY_UNREADABLE")),
        (200, b"<html>be back soon</html>", Unknown(code="REPLY_UNREADABLE")),
        (202, b"[51]", Unknown(code="REPLY_UNREADABLE")),
        (200, b"[" * 100_000, Unknown(code="REPLY_UNREADABLE")),
        (404, b"<html>", Reject("HTTP_404")),
        (429, b'{"code": []}', Retry(code="HTTP_429")),
        (502, b"<html>", Unknown(code="HTTP_502")),
        (503, b'{"code": 51}', Reject("51")),
    ],
)
async def test_an_answer_counts_as_paid_only_if_it_can_be_read_and_says_so(
    status: int, body: bytes, outcome: RailOutcome
) -> None:
    config = HttpRailConfig("https://bank.example/pay", codes={"51": "REJECT", "0": "OK"})
    client = cast(Outgoing, _Answering(Reply(status, body=body)))
    assert await HttpRail(config, client).dispatch(instruction(), KEY) == outcome


async def test_a_configuration_may_say_what_an_unreadable_answer_means() -> None:
    config = HttpRailConfig("https://bank.example/pay", codes={"REPLY_UNREADABLE": "OK"})
    client = cast(Outgoing, _Answering(Reply(200, body=b"accepted")))
    outcome = await HttpRail(config, client).dispatch(instruction(), KEY)
    assert outcome == Sent(None, "REPLY_UNREADABLE")


async def test_nothing_was_sent_where_nobody_listens_or_the_address_is_refused() -> None:
    outgoing = _outgoing()
    for url in ("http://127.0.0.1:9/transfers", "http://169.254.169.254/latest"):
        with pytest.raises(NotSent):
            await HttpRail(HttpRailConfig(url), outgoing).dispatch(instruction(), KEY)
    await outgoing.close()


async def test_a_rail_over_http_is_asked_by_key_and_not_found_settles_nothing() -> None:
    simulator = Simulator()
    outgoing = _outgoing()
    async with serving(simulator) as base:
        rail = AskableHttpRail(_config(base), outgoing, status_url=f"{base}/transfers/{{key}}")
        assert await rail.status_query(instruction(), KEY) == Unknown(code="HTTP_404")
        await rail.dispatch(instruction(), KEY)
        assert await rail.status_query(instruction(), KEY) == Sent("sim-1", "HTTP_200")
        assert await rail.status_query(instruction(), UUID(int=1)) == Unknown(code="HTTP_404")
        await outgoing.close()


def test_destinations_need_the_keys_of_the_configuration() -> None:
    rail = HttpRail(_config("http://127.0.0.1:9"), _outgoing())
    assert rail.check_destination(IBAN) is None
    for wrong in ("DE02", {"bic": "X"}, {"iban": ""}):
        assert rail.check_destination(wrong) == "the destination needs iban"


def test_an_instruction_does_not_hide_its_amount_in_its_details() -> None:
    assert Instruction("i", "p", "ach", 5, "EUR", IBAN, {"amount": 1}).problem() is not None
