"""The sources as a process knows them: fresh enough, complete, and no secret in any complaint."""

from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from penstock.inbox.model import Source
from penstock.inbox.sources import BODY_BYTES_DEFAULT, Sources, sender_of
from penstock.kernel.errors import BadSetting, DatabaseUnreachable
from penstock.kernel.events import Events, Observation, SourceUnusable

ENV = {"ONE": "first", "TWO": "second"}


def source(name: str = "s", provider: str = "stripe", **changes: object) -> Source:
    plain = Source(id=UUID(int=1), source=name, provider=provider, secret_refs=("env:ONE",))
    values: dict[str, Any] = dict(changes)
    return replace(plain, **values)


class Shelf:
    """Stands for the database."""

    def __init__(self, *rows: Source) -> None:
        self.rows = list(rows)
        self.reads = 0
        self.away = False
        self.now_s = 100.0
        self.seen: list[Observation] = []
        events = Events()
        events.subscribe(self.seen.append)
        self.sources = Sources(self.load, env=ENV, events=events, clock=lambda: self.now_s)

    async def load(self) -> list[Source]:
        self.reads += 1
        if self.away:
            raise DatabaseUnreachable
        return self.rows


async def test_known_and_unknown_names_read_equally_often() -> None:
    shelf = Shelf(source())
    for name in ("s", "nobody", "s", "nobody"):
        assert (await shelf.sources.find(name) is None) == (name == "nobody")
    assert shelf.reads == 1
    shelf.now_s += 3
    assert await shelf.sources.find("nobody") is None
    assert shelf.reads == 2


async def test_a_doubt_reads_again_and_so_does_an_invalidation() -> None:
    shelf = Shelf()
    assert await shelf.sources.find("s") is None
    shelf.rows.append(source())
    shelf.now_s += 0.5
    assert await shelf.sources.find("s") is None
    assert await shelf.sources.find("s", older_than_s=0.25) is not None
    shelf.rows.clear()
    shelf.sources.invalidate()
    assert await shelf.sources.find("s") is None


async def test_while_the_database_is_away_the_old_knowledge_goes_on() -> None:
    shelf = Shelf(source())
    shelf.away = True
    with pytest.raises(DatabaseUnreachable):
        await shelf.sources.find("s")
    shelf.away = False
    assert await shelf.sources.find("s") is not None
    shelf.away = True
    shelf.now_s += 60
    assert await shelf.sources.find("s") is not None


async def test_a_source_that_cannot_work_is_left_out_and_complained_of_once() -> None:
    shelf = Shelf(
        source("good"),
        source("off", enabled=False),
        source("nowhere", secret_refs=("env:MISSING",)),
        source("clear", secret_refs=("whsec_canary",)),
        source("none", secret_refs=()),
        source("strange", provider="nobody"),
        source("key", provider="daily"),
        source("twilio", provider="twilio"),
        source("options", options={"rate_per_s": "many"}),
    )
    for _ in range(3):
        assert await shelf.sources.find("good") is not None
        shelf.sources.invalidate()
    complaints = [seen for seen in shelf.seen if isinstance(seen, SourceUnusable)]
    assert {seen.source for seen in complaints} == {
        "nowhere",
        "clear",
        "none",
        "strange",
        "key",
        "twilio",
        "options",
    }
    assert len(complaints) == 7
    assert "canary" not in str(complaints)


async def test_one_missing_secret_does_not_stop_the_other(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("from a file\n")
    refs = (f"file:{tmp_path / 'secret'}", "env:MISSING", "env:TWO")
    sender = sender_of(source(secret_refs=refs), ENV)
    assert [secret.reveal() for secret in sender.secrets] == ["from a file", "second"]


async def test_the_limit_before_anybody_is_known_is_the_largest() -> None:
    shelf = Shelf(source(), source("w", provider="whatsapp"), source("x", max_body=10))
    await shelf.sources.find("")
    assert shelf.sources.body_bytes_max == 3 * BODY_BYTES_DEFAULT
    small = await shelf.sources.find("x")
    assert small is not None
    assert small.body_bytes_max == 10


def test_own_options_do_not_reach_the_scheme() -> None:
    options = {"rate_per_s": 5, "verify_token_refs": ["env:TWO"]}
    sender = sender_of(source(provider="whatsapp", options=options), ENV)
    assert sender.rate_per_s == 5
    assert [token.reveal() for token in sender.tokens] == ["second"]
    with pytest.raises(BadSetting, match="colour"):
        sender_of(source(options={"colour": "red"}), ENV)
