"""The command group. Commands are loaded when called, so that `--help` is quick and never fails.

Exit codes: 0 fine, 1 a finding, 2 wrong usage, 3 database not reachable, 4 schema or version
mismatch, 5 refused for safety. A command may return an int: its exit code.
"""

import difflib
import importlib
import importlib.metadata
import re
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from penstock.cli.commands import COMMANDS, EXTRAS, SECTIONS
from penstock.cli.invocation import Invocation
from penstock.cli.output import Output
from penstock.kernel import failpoints
from penstock.kernel.database import translate
from penstock.kernel.errors import BadSetting, MissingExtra, PenstockError, WrongUsage
from penstock.kernel.secrets import mask_text

PROGRAM = "penstock"
INTERRUPTED = 130


class LazyGroup(click.Group):
    """A group whose commands live in other modules, named in a table, imported when called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every command of the table, loaded or not."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of one command."""
        del ctx
        entry = COMMANDS.get(cmd_name)
        return None if entry is None else _with_global_options(load(cmd_name))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands by what they are for, from the table alone: nothing is imported."""
        del ctx
        for section in SECTIONS:
            rows = [
                (name, entry.help) for name, entry in COMMANDS.items() if entry.section == section
            ]
            with formatter.section(section):
                formatter.write_dl(rows)


def load(name: str) -> click.Command:
    """Import one command of the table; a missing part or extra is a clear error."""
    module_name, _, attribute = COMMANDS[name].target.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise _missing(name, error) from error
    command = getattr(module, attribute, None)
    if not isinstance(command, click.Command):
        raise WrongUsage(
            f"`{PROGRAM} {name}` is not part of this build",
            todo=f"`{PROGRAM} --help` lists the commands.",
        )
    return command


def _missing(name: str, error: ModuleNotFoundError) -> PenstockError:
    absent = (error.name or "").partition(".")[0]
    if absent == "penstock":
        return WrongUsage(
            f"`{PROGRAM} {name}` is not part of this build: there is no {error.name}",
            todo=f"`{PROGRAM} --help` lists the commands.",
        )
    extra = EXTRAS.get(absent, "all")
    return MissingExtra(
        f"`{PROGRAM} {name}` needs {absent}", todo=f"pip install 'penstock[{extra}]'"
    )


def _set_json(ctx: click.Context, _option: click.Parameter, value: bool) -> None:
    if value:
        ctx.ensure_object(Invocation).as_json = True


def _set_quiet(ctx: click.Context, _option: click.Parameter, value: bool) -> None:
    if value:
        ctx.ensure_object(Invocation).quiet = True


def _set_verbose(ctx: click.Context, _option: click.Parameter, value: int) -> None:
    if value:
        ctx.ensure_object(Invocation).verbose = value


def _set_app(ctx: click.Context, _option: click.Parameter, value: str | None) -> None:
    if value:
        ctx.ensure_object(Invocation).app = value


def _set_config(ctx: click.Context, _option: click.Parameter, value: Path | None) -> None:
    if value:
        ctx.ensure_object(Invocation).config = value


def _set_database(ctx: click.Context, _option: click.Parameter, value: str | None) -> None:
    if value:
        ctx.ensure_object(Invocation).overrides["database_url"] = value


def global_options() -> list[click.Option]:
    """The options that every command takes, before or after its name."""
    return [
        click.Option(
            ["--app"],
            expose_value=False,
            callback=_set_app,
            envvar="PENSTOCK_APP",
            metavar="MODULE:ATTRIBUTE",
            help="The application: where its Penstock object is.",
        ),
        click.Option(
            ["--database"],
            expose_value=False,
            callback=_set_database,
            metavar="URL",
            help="The database; goes before PENSTOCK_DATABASE_URL. Also `env:NAME`, `file:PATH`.",
        ),
        click.Option(
            ["--config"],
            expose_value=False,
            callback=_set_config,
            type=click.Path(path_type=Path, dir_okay=False),
            help="The settings file; without it ./penstock.toml.",
        ),
        click.Option(
            ["--json"],
            is_flag=True,
            expose_value=False,
            callback=_set_json,
            help="Print one JSON document.",
        ),
        click.Option(
            ["--quiet", "-q"],
            is_flag=True,
            expose_value=False,
            callback=_set_quiet,
            help="Print results only.",
        ),
        click.Option(
            ["--verbose", "-v"],
            count=True,
            expose_value=False,
            callback=_set_verbose,
            help="Say more; also shows tracebacks.",
        ),
    ]


def _with_global_options(command: click.Command) -> click.Command:
    """Let the global options also stand after the command, unless it has one of that name."""
    taken = {text for option in command.params for text in (*option.opts, *option.secondary_opts)}
    for option in global_options():
        option.hidden = True
        if not taken.intersection(option.opts):
            command.params.append(option)
    if isinstance(command, click.Group):
        for inner in command.commands.values():
            _with_global_options(inner)
    return command


def _print_version(ctx: click.Context, _option: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        click.echo(f"{PROGRAM} {importlib.metadata.version('penstock')}")
        ctx.exit()


cli = LazyGroup(
    name=PROGRAM,
    help="Takes bursts into Postgres and delivers every item to where it must go.",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    params=[
        *global_options(),
        click.Option(
            ["--version"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_print_version,
            help="Print the version and stop.",
        ),
    ],
)


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code; errors are printed in the one form."""
    invocation = Invocation()
    try:
        failpoints.arm_from_environment()
        result: Any = cli.main(
            args=list(arguments), prog_name=PROGRAM, obj=invocation, standalone_mode=False
        )
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return 2
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return INTERRUPTED
    except Exception as error:
        return _report(error, arguments, invocation)
    return result if isinstance(result, int) else 0


def _report(error: Exception, arguments: Sequence[str], invocation: Invocation) -> int:
    ours = _as_ours(error)
    if invocation.verbose:
        click.echo(mask_text("".join(traceback.format_exception(error))), err=True)
    # A usage error may strike before the callback of --json has run.
    as_json = invocation.as_json or "--json" in arguments
    Output(as_json=as_json).error(ours)
    return ours.entry.exit_code


def _as_ours(error: Exception) -> PenstockError:
    if isinstance(error, PenstockError):
        return error
    if isinstance(error, click.UsageError):
        path = error.ctx.command_path if error.ctx else PROGRAM
        return WrongUsage(error.format_message(), todo=f"{_near(error, path)}see `{path} --help`.")
    if isinstance(error, click.ClickException):
        return WrongUsage(error.format_message())
    if isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        return _as_ours(error.exceptions[0])
    if isinstance(error, ValueError) and "failpoint" in str(error):
        return BadSetting(str(error))
    translated = translate(error)
    if translated is not None:
        return translated
    return PenstockError(
        mask_text(f"{type(error).__name__}: {error}"),
        todo="run it again with -v for the traceback, and report it.",
    )


def _near(error: click.UsageError, path: str) -> str:
    """The command that was probably meant; inside groups that are loaded click says so itself."""
    wrong = re.fullmatch(r"No such command '([^']+)'\.", error.format_message())
    if wrong is None or error.ctx is None or not isinstance(error.ctx.command, click.Group):
        return ""
    known = error.ctx.command.list_commands(error.ctx)
    near = difflib.get_close_matches(wrong.group(1), known, n=1, cutoff=0.5)
    return f"did you mean `{path} {near[0]}`? Or " if near else ""


def main() -> None:
    """Entry point of the `penstock` program."""
    sys.exit(run(sys.argv[1:]))
