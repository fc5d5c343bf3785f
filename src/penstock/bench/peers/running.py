"""Installs a peer on demand, outside of our environment, and lets it drain a backlog of its own."""

import asyncio
import json
import os
import shutil
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from uuid import uuid4

INSTALL_S = 240.0
DRAIN_S = 120.0


class NotReached(Exception):
    """A peer could not be installed or did not finish; its message is the reason to print."""


@dataclass(frozen=True, slots=True)
class Peer:
    """What to install, the script that drives it, and the setting that was quickest for it."""

    name: str
    script: str
    packages: tuple[str, ...]
    jobs: int
    tuning: int

    @property
    def node(self) -> bool:
        """Whether it runs on Node."""
        return self.script.endswith(".js")


# The settings are those of their documentation for throughput; where it leaves a choice, the
# quickest that was tried: batch 500 of 200, 500 and 1,000; 256 workers of 64 and 256.
PEERS = {
    peer.name: peer
    for peer in (
        Peer("graphile", "drain_graphile.js", ("graphile-worker@0.17.3",), 100_000, 500),
        Peer(
            "pgqueuer",
            "drain_pgqueuer.py",
            ("pgqueuer==1.6.0", "asyncpg==0.32.0", "uvloop"),
            60_000,
            500,
        ),
        Peer("awa", "drain_awa.py", ("awa-pg==0.6.9", "uvloop"), 15_000, 256),
        Peer(
            "procrastinate",
            "drain_procrastinate.py",
            ("procrastinate==3.10.0", "psycopg[binary,pool]", "uvloop"),
            2_000,
            20,
        ),
    )
}


async def drain_rate(peer: Peer, url: str, payload: str) -> float:
    """Jobs per second, from the start of its worker to the last job run; raises NotReached."""
    home = await _installed(peer)
    command = ["node"] if peer.node else [str(home / "bin" / "python")]
    with ExitStack() as stack:
        script = stack.enter_context(as_file(files(__package__).joinpath(peer.script)))
        printed = await _run(
            [*command, str(script), url, str(peer.jobs), payload, str(peer.tuning)],
            modules=home / "node_modules",
            timeout_s=DRAIN_S,
        )
    figures = json.loads(printed.splitlines()[-1])
    if figures["jobs"] != peer.jobs:
        raise NotReached(f"{peer.name} ran {figures['jobs']} jobs of {peer.jobs}")
    return peer.jobs / float(figures["seconds"])


async def _installed(peer: Peer) -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock" / "peers"
    # Named by what is in it: another version is another directory.
    home = cache / f"{peer.name}-{'-'.join(peer.packages).replace('/', '_')}"
    if home.exists():
        return home
    cache.mkdir(parents=True, exist_ok=True)
    making = cache / f".making-{uuid4().hex}"
    try:
        await _install(peer, making)
        # A virtual environment may be moved: its python finds itself, and only that is used.
        making.rename(home)
    finally:
        shutil.rmtree(making, ignore_errors=True)
    return home


async def _install(peer: Peer, home: Path) -> None:
    if peer.node:
        if shutil.which("npm") is None or shutil.which("node") is None:
            raise NotReached("node and npm are not installed")
        quiet = ("--no-audit", "--no-fund", "--silent")
        await _run(["npm", "install", *quiet, "--prefix", str(home), *peer.packages])
        return
    await _run([sys.executable, "-m", "venv", str(home)])
    await _run([str(home / "bin" / "python"), "-m", "pip", "install", "-q", *peer.packages])


async def _run(
    command: Sequence[str], *, modules: Path | None = None, timeout_s: float = INSTALL_S
) -> str:
    """What the command prints; raises NotReached with its last words."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    if modules is not None:
        environment["NODE_PATH"] = str(modules)
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environment,
        )
    except OSError as error:
        raise NotReached(f"{command[0]}: {error}") from error
    try:
        out, err = await asyncio.wait_for(process.communicate(), timeout_s)
    except TimeoutError:
        raise NotReached(f"{Path(command[0]).name} took longer than {timeout_s:.0f} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        words = (err.decode(errors="replace").strip() or "no message").splitlines()
        raise NotReached(f"{Path(command[0]).name} failed: {words[-1][:200]}")
    return out.decode()
