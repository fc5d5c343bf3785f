"""How clients reach a server: its socket directory and port, as URL or environment."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote


@dataclass(frozen=True, slots=True)
class Address:
    """A Unix socket: the directory it lies in and the port number in its name."""

    socket_dir: Path
    port: int

    @property
    def socket_path(self) -> Path:
        """The socket itself."""
        return self.socket_dir / f".s.PGSQL.{self.port}"

    def url(self, database: str, user: str) -> str:
        """A URL for libpq, psycopg and asyncpg alike."""
        login = f"{quote(user, safe='')}@/{quote(database, safe='')}"
        return f"postgresql://{login}?host={quote(str(self.socket_dir))}&port={self.port}"

    def environ(
        self, base: Mapping[str, str], *, database: str, user: str, bin_dir: Path
    ) -> dict[str, str]:
        """An environment in which the packaged programs talk to this server and to no other."""
        kept = {name: value for name, value in base.items() if not name.startswith("PG")}
        return kept | {
            "PATH": f"{bin_dir}:{base.get('PATH', '')}",
            "PGHOST": str(self.socket_dir),
            "PGPORT": str(self.port),
            "PGUSER": user,
            "PGDATABASE": database,
            "PGCONNECT_TIMEOUT": "10",
        }


def tcp_url(port: int, database: str, *, user: str, password: str) -> str:
    """A URL for the loopback TCP port, which asks for a password."""
    login = f"{quote(user, safe='')}:{quote(password, safe='')}"
    return f"postgresql://{login}@127.0.0.1:{port}/{quote(database, safe='')}"
