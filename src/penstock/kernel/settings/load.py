"""Reads settings from the file, the environment and the command line, in rising order of weight."""

import difflib
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from penstock.kernel.errors import BadSetting
from penstock.kernel.references import follow, is_reference
from penstock.kernel.settings.names import PREFIX, PROCESS_VARIABLES, is_process_variable
from penstock.kernel.settings.rules import check
from penstock.kernel.settings.spec import Setting
from penstock.kernel.settings.table import TABLE, Settings

DEFAULT_FILE = Path("penstock.toml")


@dataclass(frozen=True, slots=True)
class _Given:
    """A value as it was written, and where."""

    raw: object
    source: str


def with_values(settings: Settings, **values: object) -> Settings:
    """The same settings with some values replaced, checked for contradictions."""
    for name in values:
        if name not in TABLE:
            raise _unknown(f"setting {name}", name, TABLE)
    changes: dict[str, Any] = dict(values)
    sources = MappingProxyType({**settings.sources, **dict.fromkeys(values, "code")})
    changed = replace(settings, **changes, sources=sources)
    check(changed)
    return changed


def load_settings(
    env: Mapping[str, str],
    toml_path: Path | None = None,
    overrides: Mapping[str, object] | None = None,
) -> Settings:
    """Build the settings: `toml_path` < `env` < `overrides` (the command line).

    Without a path, `PENSTOCK_CONFIG` names the file, else ./penstock.toml is read if it exists.
    Empty variables count as unset. Unknown names, bad values and contradictions raise BadSetting.
    """
    given = _from_file(_find_file(env, toml_path))
    given |= _from_env(env)
    given |= _from_overrides(overrides or {})
    values = {name: _value(TABLE[name], written, env) for name, written in given.items()}
    sources = MappingProxyType({name: written.source for name, written in given.items()})
    settings = Settings(**values, sources=sources)
    check(settings)
    return settings


def _find_file(env: Mapping[str, str], toml_path: Path | None) -> Path | None:
    named = toml_path or (Path(env["PENSTOCK_CONFIG"]) if env.get("PENSTOCK_CONFIG") else None)
    if named is None:
        return DEFAULT_FILE if DEFAULT_FILE.is_file() else None
    if not named.is_file():
        raise BadSetting(f"there is no settings file {named}")
    return named


def _from_file(path: Path | None) -> dict[str, _Given]:
    if path is None:
        return {}
    try:
        document = tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadSetting(f"{path} cannot be read: {error}") from error
    given: dict[str, _Given] = {}
    for name, raw in _flatten(document):
        if name not in TABLE:
            raise _unknown(f"key {name} in {path}", name, TABLE)
        if name in given:
            raise BadSetting(f"{path} sets {name} twice, in a section and outside")
        given[name] = _Given(raw, str(path))
    return given


def _flatten(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Yield `section_key` for a key of a section, so that `[http] timeout_s` is http_timeout_s."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{key}_")
        else:
            yield f"{prefix}{key}", value


def _from_env(env: Mapping[str, str]) -> dict[str, _Given]:
    known = {name for row in TABLE.values() for name in row.env_names} | PROCESS_VARIABLES.keys()
    for name in env:
        if name.startswith(PREFIX) and name not in known and not is_process_variable(name):
            raise _unknown(f"variable {name}", name, [n for n in known if n.startswith(PREFIX)])
    given = {}
    for row in TABLE.values():
        found = _variable(row, env)
        if found:
            given[row.name] = _Given(env[found], found)
    return given


def _variable(row: Setting, env: Mapping[str, str]) -> str | None:
    """The variable that decides: our own name, else the one alias that is set."""
    own, *aliases = row.env_names
    if env.get(own):
        return own
    present = [name for name in aliases if env.get(name)]
    if len({env[name] for name in present}) > 1:
        raise BadSetting(
            f"{' and '.join(present)} differ, and both mean {row.name}",
            todo=f"set one of them, or {own}, which goes before both.",
        )
    return present[0] if present else None


def _from_overrides(overrides: Mapping[str, object]) -> dict[str, _Given]:
    for name in overrides:
        if name not in TABLE:
            raise _unknown(f"setting {name}", name, TABLE)
    return {name: _Given(raw, "command line") for name, raw in overrides.items() if raw is not None}


def _value(row: Setting, written: _Given, env: Mapping[str, str]) -> Any:
    raw = written.raw
    try:
        if row.spec.secret:
            raw = _resolve(raw, env)
        return row.spec.parse(raw)
    except ValueError as error:
        shown = "" if row.spec.secret else f", not {written.raw!r}"
        raise BadSetting(f"{row.name} {error}{shown} (from {written.source})") from None


def _resolve(raw: object, env: Mapping[str, str]) -> object:
    """Follow `file:/path` and `env:NAME`, so that no secret need stand in a file or a variable."""
    if isinstance(raw, list):
        return [_resolve(part, env) for part in raw]
    if not isinstance(raw, str):
        return raw
    return follow(raw, env) if is_reference(raw) else raw


def _unknown(what: str, name: str, known: Iterable[str]) -> BadSetting:
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    hint = f"; did you mean {near[0]}?" if near else ""
    return BadSetting(f"unknown {what}{hint}", happened="a setting of that name does not exist.")
