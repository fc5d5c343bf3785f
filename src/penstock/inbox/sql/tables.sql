-- The configured senders. Secrets are referred to, never stored.
create table public.webhook_endpoints (
    id               uuid        primary key default penstock.uuidv7(),
    source           text        not null unique check (source ~ '^[a-z0-9][a-z0-9_-]{0,62}$'),
    provider         text        not null check (provider ~ '^[a-z0-9][a-z0-9_-]{0,62}$'),
    secret_refs      text[]      not null default '{}',
    tolerance_s      integer     not null default 300 check (tolerance_s between 1 and 86400),
    max_body         integer     not null default 1048576 check (max_body between 1 and 16777216),
    max_backlog      integer     default 100000 check (max_backlog > 0),
    timestamp_signed boolean     not null default true,
    public_url       text,
    unhandled        text        not null default 'keep' check (unhandled in ('keep', 'ignore')),
    options          jsonb       not null default '{}' check (jsonb_typeof(options) = 'object'),
    enabled          boolean     not null default true,
    created_at       timestamptz not null default penstock.clock(),
    rotated_at       timestamptz
);
comment on table public.webhook_endpoints is 'Sources of webhooks; id is the webhook_id of events.';
comment on column public.webhook_endpoints.secret_refs is
    'Where the secrets are (env:NAME, file:PATH); all of them verify, so that one can be rotated.';
comment on column public.webhook_endpoints.timestamp_signed is
    'False: nothing but memory stops a replay, so events of this source are never forgotten.';
comment on column public.webhook_endpoints.unhandled is
    'Events without a handler: keep them waiting for one, or ignore them as done.';

-- Events to be done, and what was done a short while ago; older ones move to the archive. A row is
-- ready (pos), waiting (next_attempt_at), leased (lease_token) or at an end, by its status.
create table public.webhook_events (
    id               uuid        primary key default penstock.uuidv7(),
    seq              bigint      generated always as identity,
    webhook_id       uuid        not null,
    event_id         text        not null check (length(event_id) between 1 and 500),
    payload          jsonb,
    signature        text,
    received_at      timestamptz not null default penstock.clock(),
    created_at       timestamptz not null default penstock.clock(),
    provider         text        not null,
    event_type       text        not null default '',
    raw_body         bytea       not null,
    content_type     text        not null default 'application/json',
    headers          jsonb       not null default '{}' check (jsonb_typeof(headers) = 'object'),
    body_sha256      bytea       not null check (octet_length(body_sha256) = 32),
    delivery_id      uuid,
    status           public.webhook_event_status not null default 'pending',
    pos              bigint      default nextval('penstock.inbox_next'),
    attempts         integer     not null default 0,
    total_attempts   integer     not null default 0,
    replay_count     integer     not null default 0,
    next_attempt_at  timestamptz,
    last_attempt_at  timestamptz,
    lease_token      uuid,
    lease_epoch      bigint      not null default 0,
    lease_owner      uuid,
    lease_expires_at timestamptz,
    finished_token   uuid,
    processed_at     timestamptz,
    dead_at          timestamptz,
    error_code       text,
    error            text        check (length(error) <= 2000),
    constraint webhook_events_one_state check (
        case status
            when 'pending' then num_nonnulls(pos, next_attempt_at) = 1 and lease_token is null
            when 'failed' then num_nonnulls(pos, next_attempt_at) = 1 and lease_token is null
            when 'processing' then num_nonnulls(pos, next_attempt_at) = 0
                                   and lease_token is not null
            when 'success' then num_nonnulls(pos, next_attempt_at, lease_token) = 0
                                and processed_at is not null
            else num_nonnulls(pos, next_attempt_at, lease_token) = 0 and dead_at is not null
        end),
    constraint webhook_events_lease_whole check (
        (lease_token is null) = (lease_expires_at is null))
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

create index idx_webhook_events_pending on public.webhook_events (status, received_at);
create index idx_webhook_events_webhook_status on public.webhook_events (webhook_id, status);
create index webhook_events_ready on public.webhook_events (pos) where pos is not null;
create index webhook_events_due on public.webhook_events (next_attempt_at)
    where next_attempt_at is not null;
create index webhook_events_lease_end on public.webhook_events (lease_expires_at)
    where lease_expires_at is not null;
create index webhook_events_suspect on public.webhook_events (seq)
    where error_code = 'ZOMBIE_SUSPECT' and next_attempt_at is null and dead_at is null;
create index webhook_events_done on public.webhook_events (processed_at)
    where processed_at is not null;

-- The last index on purpose: among plans of equal cost the planner takes the newest index.
alter table public.webhook_events
    add constraint webhook_unique_event unique (webhook_id, event_id);

comment on table public.webhook_events is
    'Received events; those done longer than an hour ago are in webhook_events_archive.';
comment on column public.webhook_events.raw_body is
    'The bytes as received; of a delivery that was split, its own part.';
comment on column public.webhook_events.delivery_id is
    'The shared body in webhook.bodies that this event came in, if a delivery held several.';
comment on column public.webhook_events.pos is
    'Claim position; set exactly while the row is ready.';

create table public.webhook_events_archive (
    id             uuid        not null,
    webhook_id     uuid        not null,
    event_id       text        not null,
    payload        jsonb,
    signature      text,
    received_at    timestamptz not null,
    provider       text        not null,
    event_type     text        not null,
    raw_body       bytea       not null,
    content_type   text        not null,
    headers        jsonb       not null,
    body_sha256    bytea       not null,
    delivery_id    uuid,
    total_attempts integer     not null,
    replay_count   integer     not null,
    lease_epoch    bigint      not null,
    finished_token uuid,
    state          text        not null check (state in ('SUCCESS', 'DISCARDED')),
    processed_at   timestamptz not null
) partition by range (processed_at);
create table public.webhook_events_archive_default
    partition of public.webhook_events_archive default;
create index webhook_events_archive_id on public.webhook_events_archive (id);
create index webhook_events_archive_default_time
    on public.webhook_events_archive_default (processed_at);
comment on table public.webhook_events_archive is 'Finished events by day; retention drops days.';
comment on table public.webhook_events_archive_default is
    'Catches rows of a day without a partition.';

-- One row for every attempt that did not end in success.
create table public.webhook_attempts (
    id          uuid        not null,
    lease_token uuid        not null,
    lease_epoch bigint      not null,
    lease_owner uuid,
    ended_at    timestamptz not null default penstock.clock(),
    outcome     text        not null
        check (outcome in ('RETRY', 'REJECT', 'UNKNOWN', 'ZOMBIE', 'RELEASED')),
    error_code  text,
    error       text
) partition by range (ended_at);
create table public.webhook_attempts_default partition of public.webhook_attempts default;
create index webhook_attempts_event on public.webhook_attempts (id);
create index webhook_attempts_default_time on public.webhook_attempts_default (ended_at);
comment on table public.webhook_attempts is 'How each unsuccessful attempt ended; append-only.';
comment on table public.webhook_attempts_default is 'Catches rows of a day without a partition.';

-- The seed's marker of a side effect. It cannot tell two accounts of one provider apart, nor a
-- marker whose effect never happened: webhook_effects can.
create table public.webhook_side_effects (
    id         uuid        primary key default gen_random_uuid(),
    provider   text        not null,
    event_id   text        not null,
    payload    jsonb,
    created_at timestamptz default penstock.clock(),
    unique (provider, event_id)
);
comment on table public.webhook_side_effects is 'Markers that handlers write by themselves.';

create table public.webhook_effects (
    webhook_id      uuid        not null,
    event_id        text        not null,
    handler         text        not null check (length(handler) between 1 and 200),
    state           text        not null default 'started' check (state in ('started', 'done')),
    idempotency_key text        not null,
    external_ref    text,
    starts          integer     not null default 1,
    started_at      timestamptz not null default penstock.clock(),
    done_at         timestamptz,
    primary key (webhook_id, event_id, handler),
    check ((state = 'done') = (done_at is not null))
);
comment on table public.webhook_effects is
    'Outside calls of handlers: begun, and done only after the answer; one constant key each.';

-- What is remembered of events whose rows are gone: enough to know them again.
create table webhook.memory (
    webhook_id  uuid        not null,
    event_id    text        not null,
    body_sha256 bytea       not null,
    received_at timestamptz not null,
    forget_at   timestamptz,
    primary key (webhook_id, event_id)
);
create index memory_forget on webhook.memory (forget_at) where forget_at is not null;
comment on table webhook.memory is
    'Identity of archived events; outlives their payload, for ever where forget_at is null.';

create table webhook.bodies (
    delivery_id uuid        primary key,
    raw_body    bytea       not null,
    received_at timestamptz not null default penstock.clock()
);
create index bodies_received on webhook.bodies (received_at);
comment on table webhook.bodies is 'Whole bodies of deliveries that held several events.';

create table webhook.conflicts (
    webhook_id  uuid        not null,
    event_id    text        not null,
    body_sha256 bytea       not null,
    first_at    timestamptz not null default penstock.clock(),
    times       integer     not null default 1,
    primary key (webhook_id, event_id, body_sha256)
);
comment on table webhook.conflicts is
    'Events that came again with another body; the first is kept.';

-- Counters come from the transition itself, in its transaction. Rows are only added, so that no two
-- workers wait for one counter; housekeeping folds them.
create table webhook.tally (
    seq        bigint generated always as identity primary key,
    metric     text   not null,
    webhook_id uuid   not null,
    label      text   not null,
    count      bigint not null
);
comment on table webhook.tally is 'Additions to the counters of webhook.metrics.';

-- Events that no Python handler takes may go straight on.
create table public.webhook_routes (
    source     text    not null references public.webhook_endpoints (source),
    pattern    text    not null default '*' check (length(pattern) between 1 and 200),
    kind       text    not null check (kind in ('http', 'sql')),
    target     text    not null,
    secret_ref text,
    enabled    boolean not null default true,
    primary key (source, pattern)
);
comment on table public.webhook_routes is
    'Where events go that no handler of the application takes: an HTTP endpoint or a function.';

create table webhook.route_functions (
    name text primary key
);
comment on table webhook.route_functions is 'The only SQL functions that a route may name.';

alter table public.webhook_endpoints              enable row level security;
alter table public.webhook_events                 enable row level security;
alter table public.webhook_events_archive         enable row level security;
alter table public.webhook_events_archive_default enable row level security;
alter table public.webhook_attempts               enable row level security;
alter table public.webhook_attempts_default       enable row level security;
alter table public.webhook_side_effects           enable row level security;
alter table public.webhook_effects                enable row level security;
alter table public.webhook_routes                 enable row level security;
alter table webhook.memory                        enable row level security;
alter table webhook.bodies                        enable row level security;
alter table webhook.conflicts                     enable row level security;
alter table webhook.tally                         enable row level security;
alter table webhook.route_functions               enable row level security;

insert into penstock.queue_config (queue, max_attempts, backoff_base_s)
values ('inbox', 5, 2) on conflict do nothing;
