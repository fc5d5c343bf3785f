"""Makes a new data directory, all or nothing.

`initdb` works in a scratch directory beside the target, which gets its name only when complete: a
launcher killed half way leaves rubbish that the next one sweeps, never half a cluster.
"""

import os
import secrets
import shutil
import tempfile
from pathlib import Path

from penstock.kernel.errors import PostgresFailed
from penstock.postgres.account import Account, hand_over, make_parents, require_entry, run_as
from penstock.postgres.binaries import Binaries

LOGIN_FILE = "penstock.password"
_INITDB_TIMEOUT_S = 300.0


def is_cluster(data_dir: Path) -> bool:
    """Whether a complete cluster is there (`initdb` makes the global directory's control file)."""
    return (data_dir / "PG_VERSION").is_file() and (data_dir / "global" / "pg_control").is_file()


def cluster_major(data_dir: Path) -> int:
    """The major version that made the cluster."""
    text = (data_dir / "PG_VERSION").read_text().strip()
    if not text.isdigit():
        raise PostgresFailed(f"{data_dir} was made by Postgres {text!r}, which is not supported")
    return int(text)


def server_environ() -> dict[str, str]:
    """Our environment without the variables that would redirect or configure Postgres."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    # Error texts are matched and shown, so they must not depend on the caller's language.
    return kept | {"LC_ALL": "C", "TZ": "UTC"}


def make_cluster(data_dir: Path, binaries: Binaries, account: Account, *, durable: bool) -> None:
    """Create the data directory, owned by the account. The caller holds the cluster's lock."""
    if data_dir.exists() and any(data_dir.iterdir()):
        raise PostgresFailed(
            f"{data_dir} is not empty and is not a Postgres cluster",
            todo="choose another data directory, or empty this one if nothing in it is needed.",
        )
    prefix = f".{data_dir.name}.new-"
    for leftover in data_dir.parent.glob(f"{prefix}*"):
        shutil.rmtree(leftover, ignore_errors=True)
    scratch = Path(tempfile.mkdtemp(prefix=prefix, dir=data_dir.parent))
    try:
        _initdb(scratch, binaries, account, durable=durable)
        # Replaces an empty directory, and fails on one that somebody filled meanwhile.
        (scratch / "data").rename(data_dir)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if durable:
        _sync(data_dir.parent)


def prepare_parent(data_dir: Path, account: Account) -> None:
    """Create missing parents of the data directory, and check that the account can enter them."""
    make_parents(data_dir.parent, account)
    require_entry(data_dir.parent, account)


def _initdb(scratch: Path, binaries: Binaries, account: Account, *, durable: bool) -> None:
    password = scratch / "password"
    password.touch(mode=0o600)
    password.write_text(secrets.token_urlsafe(24) + "\n")
    hand_over(password, account)
    hand_over(scratch, account)
    arguments: list[str | Path] = [
        binaries.program("initdb"),
        "--username=postgres",
        "--encoding=UTF8",
        # One collation everywhere: sorting must not differ between machines and builds.
        "--locale=C",
        # The socket's directory is private. A TCP port is open to every account of the machine.
        "--auth-local=trust",
        "--auth-host=scram-sha-256",
        f"--pwfile={password}",
        f"--pgdata={scratch / 'data'}",
    ]
    if not durable:
        arguments.append("--no-sync")
    code, output = run_as(account, arguments, environ=server_environ(), timeout_s=_INITDB_TIMEOUT_S)
    if code != 0:
        raise PostgresFailed(
            f"initdb ended with code {code}: {output.strip()[-2000:]}",
            happened="the data directory could not be made; nothing was left behind.",
            todo="the output above names the cause (disk full, permissions, missing library).",
        )
    password.rename(scratch / "data" / LOGIN_FILE)


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
