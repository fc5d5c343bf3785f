"""Clusters that are kept between runs, found by name under one state directory."""

import os
import re
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path

from penstock.kernel.errors import PostgresFailed
from penstock.postgres.account import can_enter, server_account
from penstock.postgres.cluster import Cluster

STATE_VARIABLE = "PENSTOCK_STATE_DIR"


def named_cluster(
    name: str,
    *,
    port: int | None = None,
    settings: Mapping[str, str] | None = None,
    durable: bool = True,
    state_dir: Path | None = None,
) -> Cluster:
    """The cluster of that name, for example "engine" or "ledger"; not started yet."""
    if not re.fullmatch(r"[a-z][a-z0-9_-]{0,30}", name):
        raise PostgresFailed(
            f"{name!r} is no cluster name",
            todo="use up to 31 lower-case letters, digits, '-' and '_', beginning with a letter.",
        )
    root = clusters_dir() if state_dir is None else state_dir
    return Cluster(name, root / name, port=port, settings=settings, durable=durable)


def clusters_dir(environ: Mapping[str, str] | None = None) -> Path:
    """The directory that holds named clusters: PENSTOCK_STATE_DIR, else the home directory's.

    As root the server runs under another account, which usually cannot enter root's home. Opening
    the home directory is out of the question, so the clusters then live below the first of
    /var/lib and /var/tmp that the account can enter and we can write.
    """
    environ = os.environ if environ is None else environ
    explicit = environ.get(STATE_VARIABLE, "")
    if explicit:
        return Path(explicit).absolute() / "clusters"
    home = Path(environ.get("HOME") or Path.home())
    account = server_account()
    if not account.dropped or can_enter(home, account):
        return home / ".local" / "state" / "penstock" / "clusters"
    # /var/lib first: temporary directories are swept by age, file by file, which ruins a cluster.
    for base in (Path("/var/lib"), Path("/var") / "tmp", Path(tempfile.gettempdir())):
        chosen = base / f"penstock-{os.geteuid()}"
        writable = os.access(base, os.W_OK | os.X_OK) and _nobody_elses(chosen)
        if writable and can_enter(base, account):
            return chosen / "clusters"
    raise PostgresFailed(
        f"no directory for clusters that the account '{account.name}' can enter",
        todo=f"set {STATE_VARIABLE} to a directory that it can enter.",
    )


def _nobody_elses(directory: Path) -> bool:
    # In a directory open to all, somebody may have taken the name to get at what is put there.
    try:
        state = directory.lstat()
    except FileNotFoundError:
        return True
    return stat.S_ISDIR(state.st_mode) and state.st_uid == os.geteuid()
