"""The example pays once over each rail, as its pages say."""

import subprocess
import sys

from tests.support.sources import ROOT


def test_the_example_pays_each_payment_once() -> None:
    ran = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "two_rails" / "run.py")],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == [
        "transfers  called 2 times, paid 1",
        "bank       called 1 time, held: it may have been paid",
        "bank       asked, and it had: called 1, paid 1",
    ]
