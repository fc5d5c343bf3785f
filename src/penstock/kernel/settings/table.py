"""The table of settings. The loader, `penstock config` and the reference all read it from here.

A setting's name ends in its unit. Add one by adding a field: nothing else needs to know.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Literal, get_type_hints

from penstock.kernel.errors import NoDatabase
from penstock.kernel.secrets import Dsn, Secret
from penstock.kernel.settings import parse
from penstock.kernel.settings.names import RECEIVERS_SECRETS
from penstock.kernel.settings.spec import Setting, Spec

SYMMETRIC = ("HS256", "HS384", "HS512")
ASYMMETRIC = ("ES256", "ES384", "RS256", "RS384", "RS512", "EdDSA")


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything a process is told from outside. Built once, passed in, never changed."""

    database_url: Annotated[
        Dsn | None,
        Spec(
            "database",
            "The database that holds the queues. Nothing but `dev`, `demo`, `bench` and the tests "
            "starts one by itself.",
            parse.postgres_url,
            aliases=("DATABASE_URL", "DB_URL"),
            secret=True,
        ),
    ] = None
    direct_url: Annotated[
        Dsn | None,
        Spec(
            "database",
            "The same database without a pooler in between, used for LISTEN only.",
            parse.postgres_url,
            secret=True,
        ),
    ] = None
    ledger_url: Annotated[
        Dsn | None,
        Spec(
            "database",
            "The second database, where intake's bridge confirms reservations.",
            parse.postgres_url,
            secret=True,
        ),
    ] = None
    pool_size: Annotated[
        int,
        Spec(
            "database",
            "Most connections one process keeps to one database.",
            parse.integer(1, 1000),
        ),
    ] = 10
    pooler: Annotated[
        Literal["auto", "on", "off"],
        Spec(
            "database",
            "Whether a transaction pooler stands in between; auto tells by the port.",
            parse.choice("auto", "on", "off"),
        ),
    ] = "auto"
    statement_timeout_s: Annotated[
        float, Spec("database", "Longest time one statement may take.", parse.number(1, 3600))
    ] = 30.0
    listen: Annotated[
        Literal["auto", "off"],
        Spec(
            "worker",
            "Whether to use LISTEN as a hint. Polling is the guarantee either way.",
            parse.choice("auto", "off"),
        ),
    ] = "auto"
    poll_ms: Annotated[
        int | None,
        Spec(
            "worker",
            "Longest wait between two looks at an idle queue; unset: the queue's own row decides.",
            parse.integer(10, 600_000),
            aliases=("WORKER_POLL_INTERVAL_MS", "POLL_INTERVAL_MS"),
        ),
    ] = None
    max_attempts: Annotated[
        int | None,
        Spec(
            "worker",
            "Attempts before an item is dead; unset: the queue's own row decides.",
            parse.integer(1, 1000),
            aliases=("MAX_ATTEMPTS",),
        ),
    ] = None
    batch_size: Annotated[
        int, Spec("worker", "Most items one claim takes.", parse.integer(1, 1000))
    ] = 500
    concurrency: Annotated[
        int,
        Spec(
            "worker", "Handlers that run at the same time in one process.", parse.integer(1, 1000)
        ),
    ] = 16
    drain_s: Annotated[
        float,
        Spec(
            "worker",
            "How long running handlers may take to end after a stop signal.",
            parse.number(0, 3600),
        ),
    ] = 25.0
    health_host: Annotated[
        str, Spec("worker", "Address of the worker's health endpoint.", parse.text)
    ] = "127.0.0.1"
    health_port: Annotated[
        int | None,
        Spec(
            "worker",
            "Port of the worker's health endpoint; unset: none is opened. 0: any free one.",
            parse.integer(0, 65535),
        ),
    ] = None
    host: Annotated[
        str, Spec("server", "Address that `penstock serve` listens on.", parse.text)
    ] = "127.0.0.1"
    port: Annotated[
        int,
        Spec(
            "server",
            "Port that `penstock serve` listens on. 0: any free one.",
            parse.integer(0, 65535),
        ),
    ] = 8400
    max_body_bytes: Annotated[
        int,
        Spec("server", "Largest request body that is read.", parse.integer(1, 1024 * 1024 * 1024)),
    ] = 1024 * 1024
    jwt_secret: Annotated[
        Secret | None,
        Spec(
            "identity",
            "Key of user tokens signed with HS256, at least 32 bytes.",
            parse.secret,
            secret=True,
        ),
    ] = None
    jwt_jwks_url: Annotated[
        str | None,
        Spec("identity", "Where the public keys of user tokens are fetched.", parse.web_url),
    ] = None
    jwt_jwks_file: Annotated[
        Path | None,
        Spec(
            "identity",
            "A file with the public keys of user tokens, instead of an address.",
            parse.path,
        ),
    ] = None
    jwt_audience: Annotated[
        str, Spec("identity", "The audience a user token must name.", parse.text)
    ] = "authenticated"
    jwt_issuer: Annotated[
        str | None,
        Spec("identity", "The issuer a user token must name; unset: not checked.", parse.text),
    ] = None
    jwt_algorithms: Annotated[
        tuple[str, ...],
        Spec(
            "identity",
            "Algorithms accepted in user tokens; unset: those that fit the configured keys.",
            parse.chosen_words(*SYMMETRIC, *ASYMMETRIC),
        ),
    ] = ()
    anon_key: Annotated[
        Secret | None,
        Spec(
            "identity",
            "Public key of browser clients. It identifies no user and grants nothing by itself.",
            parse.secret,
            aliases=("DB1_SUPABASE_ANON_KEY",),
            secret=True,
        ),
    ] = None
    service_role_key: Annotated[
        Secret | None,
        Spec(
            "identity",
            "Key of trusted backends, which may act for any user.",
            parse.secret,
            aliases=("DB1_SUPABASE_SERVICE_ROLE_KEY",),
            secret=True,
        ),
    ] = None
    worker_key: Annotated[
        Secret | None,
        Spec(
            "identity",
            "Key of those who may trigger the bridge worker over HTTP.",
            parse.secret,
            secret=True,
        ),
    ] = None
    admin_key: Annotated[
        Secret | None, Spec("identity", "Key of the operator endpoints.", parse.secret, secret=True)
    ] = None
    metrics_key: Annotated[
        Secret | None,
        Spec(
            "identity",
            "Key that /metrics asks for; unset: /metrics is open to whoever reaches the port.",
            parse.secret,
            secret=True,
        ),
    ] = None
    demo_anonymous_claims: Annotated[
        bool,
        Spec(
            "identity",
            "Demonstrations only: the anon key may claim for any user it names.",
            parse.flag,
        ),
    ] = False
    engine_api_url: Annotated[
        str | None,
        Spec(
            "identity",
            "HTTP address of the project that holds the queues.",
            parse.web_url,
            aliases=("DB1_SUPABASE_URL",),
        ),
    ] = None
    ledger_api_url: Annotated[
        str | None,
        Spec(
            "intake",
            "HTTP address of the project that holds the ledger.",
            parse.web_url,
            aliases=("DB2_SUPABASE_URL",),
        ),
    ] = None
    ledger_anon_key: Annotated[
        Secret | None,
        Spec(
            "intake",
            "Public key of the ledger's project.",
            parse.secret,
            aliases=("DB2_SUPABASE_ANON_KEY",),
            secret=True,
        ),
    ] = None
    ledger_service_role_key: Annotated[
        Secret | None,
        Spec(
            "intake",
            "Service key of the ledger's project.",
            parse.secret,
            aliases=("DB2_SUPABASE_SERVICE_ROLE_KEY",),
            secret=True,
        ),
    ] = None
    intake_commit_functions: Annotated[
        tuple[str, ...],
        Spec(
            "intake",
            "Functions of the ledger that a pool may name as its commit_rpc_name.",
            parse.functions,
        ),
    ] = ("finalize_transaction",)
    intake_max_waiting: Annotated[
        int,
        Spec(
            "intake",
            "Claims that may wait in one process; beyond it the answer is 503 with Retry-After.",
            parse.integer(1, 1_000_000),
        ),
    ] = 10_000
    intake_group_max: Annotated[
        int,
        Spec(
            "intake",
            "Claims that one call to the database carries at most; 1: each goes by itself.",
            parse.integer(1, 1000),
        ),
    ] = 1000
    http_allow_private: Annotated[
        tuple[str, ...],
        Spec(
            "http",
            "Hosts and networks that outgoing calls may reach although they are not public.",
            parse.hosts,
        ),
    ] = ()
    http_signing_secret: Annotated[
        Secret | None,
        Spec("http", "Key that outgoing calls are signed with.", parse.secret, secret=True),
    ] = None
    http_timeout_s: Annotated[
        float, Spec("http", "Longest time one outgoing call may take.", parse.number(0.1, 300))
    ] = 10.0
    outbox_secrets: Annotated[
        tuple[Secret, ...],
        Spec(
            "outbox",
            "Values of X-Outbox-Secret that the relay route accepts; two may be live at a time.",
            parse.secrets(2),
            secret=True,
        ),
    ] = ()
    destination_secrets: Annotated[
        tuple[str, ...],
        Spec("outbox", "Secrets that destinations and routes may name; `*`: any.", parse.names),
    ] = RECEIVERS_SECRETS
    event_source: Annotated[
        str, Spec("outbox", "What envelopes of events give as their source.", parse.text)
    ] = "penstock"
    kafka_broker: Annotated[
        str | None,
        Spec(
            "outbox",
            "Address of the Kafka cluster, for destinations of that kind.",
            parse.text,
            aliases=("KAFKA_BROKER",),
        ),
    ] = None
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Spec(
            "logs",
            "The least level that is logged.",
            parse.choice("debug", "info", "warning", "error"),
        ),
    ] = "info"
    log_format: Annotated[
        Literal["json", "console"],
        Spec(
            "logs",
            "One JSON object per line, or lines for people.",
            parse.choice("json", "console"),
        ),
    ] = "json"
    state_dir: Annotated[
        Path, Spec("local", "Where the embedded database and other local state live.", parse.path)
    ] = Path(".penstock")

    sources: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    def source_of(self, name: str) -> str:
        """Where a value came from: a variable, a file, the command line, or `default`."""
        return self.sources.get(name, "default")

    def require_database(self) -> str:
        """The address of the database; raises NoDatabase when none is named."""
        if self.database_url is None:
            raise NoDatabase
        return self.database_url.reveal()

    def require_ledger(self) -> str:
        """The address of the ledger database; raises NoDatabase when none is named."""
        if self.ledger_url is None:
            raise NoDatabase("no ledger database", todo="set PENSTOCK_LEDGER_URL.")
        return self.ledger_url.reveal()

    def listen_url(self) -> str:
        """The address for LISTEN: the direct one where there is one."""
        return self.direct_url.reveal() if self.direct_url else self.require_database()

    def uses_pooler(self) -> bool | None:
        """What `pooler` says, or None when the address decides."""
        return None if self.pooler == "auto" else self.pooler == "on"

    def accepted_algorithms(self) -> tuple[str, ...]:
        """The token algorithms that fit the configured keys, unless they are named."""
        if self.jwt_algorithms:
            return self.jwt_algorithms
        symmetric = ("HS256",) if self.jwt_secret else ()
        asymmetric = ("ES256", "RS256") if self.jwt_jwks_url or self.jwt_jwks_file else ()
        return (*symmetric, *asymmetric)

    def without_databases(self) -> "Settings":
        """The same settings naming no database: what demo, bench and tests start from."""
        return replace(self, database_url=None, direct_url=None, ledger_url=None)


def _rows() -> Mapping[str, Setting]:
    hints = get_type_hints(Settings, include_extras=True)
    return MappingProxyType(
        {
            row.name: Setting(row.name, row.default, spec)
            for row in fields(Settings)
            for spec in getattr(hints[row.name], "__metadata__", ())
        }
    )


TABLE: Mapping[str, Setting] = _rows()
