"""Makes server programs reachable for the account that runs the server.

A virtual environment under a 0700 home directory is closed to the account that root drops to.
Instead of opening that directory, the programs are copied once to a world-readable cache.
"""

import hashlib
import os
import shutil
import stat
import tempfile
from dataclasses import replace
from pathlib import Path

from penstock.kernel.errors import PostgresFailed
from penstock.postgres.account import Account, can_enter, run_as
from penstock.postgres.binaries import Binaries

_SYSTEM_CACHE = Path("/var/cache")
_PARTS = ("bin", "lib", "share")


def reachable_binaries(
    binaries: Binaries, account: Account, *, cache_root: Path | None = None
) -> Binaries:
    """The same programs where the account can execute them; copies only when it must.

    Safe when several processes do it at once: each copies to a name of its own and renames.
    """
    if not account.dropped or _usable(binaries.bin_dir, account):
        return binaries
    roots = [cache_root] if cache_root is not None else _cache_roots(account)
    for root in roots:
        try:
            copied = _copy_once(binaries, root)
        except OSError:
            continue  # a read-only or full place; the next one may do
        if _usable(copied, account):
            return replace(binaries, bin_dir=copied)
    raise PostgresFailed(
        f"the account '{account.name}' cannot execute {binaries.bin_dir}, "
        f"nor a copy under {' or '.join(map(str, roots)) or 'any cache directory'}",
        happened="root may not run Postgres, and its stand-in cannot reach the programs.",
        todo="install Penstock where every account can read it, run as an ordinary user, or "
        "delete the damaged copy.",
    )


def _usable(bin_dir: Path, account: Account) -> bool:
    # initdb also proves that the client library is found, which the server does not need.
    programs = ("initdb", "postgres")
    return all(run_as(account, [bin_dir / name, "--version"])[0] == 0 for name in programs)


def _cache_roots(account: Account) -> list[Path]:
    # /var/cache first: nothing there is aged away file by file, as temporary directories are.
    owner = f"penstock-{os.geteuid()}"
    candidates = [_SYSTEM_CACHE, Path(tempfile.gettempdir()), Path("/var") / "tmp"]
    return [
        base / owner
        for base in candidates
        if os.access(base, os.W_OK | os.X_OK) and can_enter(base, account)
    ]


def _copy_once(binaries: Binaries, root: Path) -> Path:
    """Copy the installation under `root` unless a copy is there; return its bin directory."""
    install = binaries.bin_dir.parent
    package = install.parent
    target = root / f"postgres-{binaries.version}-{_digest(binaries)}"
    bin_dir = target / package.name / install.name / binaries.bin_dir.name
    _own_directory(root)
    if target.is_dir():
        return bin_dir
    scratch = Path(tempfile.mkdtemp(prefix=".copy-", dir=root))
    try:
        for part in _PARTS:
            if (install / part).is_dir():
                _copy_tree(install / part, scratch / package.name / install.name / part)
        # Wheels keep shared libraries beside the package and find them by a relative path.
        libraries = package.with_name(f"{package.name}.libs")
        if libraries.is_dir():
            _copy_tree(libraries, scratch / libraries.name)
        _open_for_reading(scratch)
        scratch.rename(target)
    except OSError:
        shutil.rmtree(scratch, ignore_errors=True)
        if not target.is_dir():  # otherwise another process was first
            raise
    return bin_dir


def _digest(binaries: Binaries) -> str:
    with (binaries.bin_dir / "postgres").open("rb") as program:
        return hashlib.file_digest(program, "sha256").hexdigest()[:12]


def _own_directory(root: Path) -> None:
    """Create the cache directory; refuse one that others could have filled with programs."""
    try:
        root.mkdir()
        root.chmod(0o755)  # a strict umask would have closed what we just created
    except FileExistsError:
        pass
    state = root.lstat()
    if not stat.S_ISDIR(state.st_mode) or state.st_uid != os.geteuid() or state.st_mode & 0o022:
        raise PermissionError(f"{root} is not a directory that only this account can write")


def _copy_tree(source: Path, target: Path) -> None:
    shutil.copytree(source, target, symlinks=True, ignore=shutil.ignore_patterns("*.a", "pgxs"))


def _open_for_reading(tree: Path) -> None:
    tree.chmod(0o755)
    for path in tree.rglob("*"):
        if not path.is_symlink():
            executable = path.is_dir() or path.stat().st_mode & stat.S_IXUSR
            path.chmod(0o755 if executable else 0o644)
