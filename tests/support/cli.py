"""Runs command lines in this process and keeps what they print."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from penstock.cli.main import run


@dataclass(frozen=True, slots=True)
class Ran:
    """What one command line did."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """The JSON document on standard output."""
        return json.loads(self.out)


Cli = Callable[..., Ran]


def make_cli(capsys: pytest.CaptureFixture[str], *leading: str) -> Cli:
    """A function that runs `penstock LEADING… ARGUMENTS…`."""

    def cli(*arguments: str) -> Ran:
        capsys.readouterr()
        code = run([*leading, *arguments])
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return cli
