"""Standard output as a sink."""

import io
import json

import pytest
from tests.support.deliveries import delivery, destination

from penstock.kernel.errors import BadSetting
from penstock.kernel.settings import Settings
from penstock.kernel.verdict import DONE
from penstock.outbox.sinks.stdout import StdoutSink, make


async def test_each_event_is_one_line_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    sink = make(destination("stdout"), Settings())
    sent = [delivery({"text": "two\nlines"}), delivery({"n": 2})]
    await sink.open()
    assert await sink.deliver(sent) == [DONE, DONE]
    await sink.close()
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line)["id"] for line in lines] == [str(d.envelope.id) for d in sent]
    assert json.loads(lines[0])["data"] == {"text": "two\nlines"}


async def test_lines_may_be_cloud_events_and_are_flushed() -> None:
    written = io.StringIO()
    flushed: list[str] = []

    class Stream(io.StringIO):
        def write(self, text: str) -> int:
            return written.write(text)

        def flush(self) -> None:
            flushed.append(written.getvalue())

    await StdoutSink("cloudevents", stream=Stream()).deliver([delivery()])
    assert json.loads(flushed[0])["specversion"] == "1.0"


def test_an_unknown_setting_is_refused() -> None:
    with pytest.raises(BadSetting, match="colour"):
        make(destination("stdout", {"colour": "red"}), Settings())
