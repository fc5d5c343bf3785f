-- Every product and the version of its schema. One row per applied version, never removed.
create table penstock.migration (
    product    text        not null,
    version    integer     not null,
    name       text        not null,
    checksum   text        not null,
    applied_at timestamptz not null default penstock.clock(),
    primary key (product, version)
);
comment on table penstock.migration is 'Applied schema versions, one line per product.';

-- What the catalog looked like when migrate ended: `schema verify` compares the live one with it.
create table penstock.catalog (
    object     text primary key,
    kind       text not null,
    digest     text not null,
    product    text not null,
    definition text not null
);
comment on table penstock.catalog is 'Digest of every installed object, for drift detection.';

-- The queues that products registered, with the views and verbs that operators use on them.
create table penstock.queue (
    queue      text primary key,
    product    text not null,
    dead_view  regclass not null,
    stats_view regclass not null,
    replay     text not null,
    discard    text not null,
    story      text not null,
    kinds      text[] not null default '{}'
);
comment on table penstock.queue is
    'Registered queues; replay, discard and story name functions (ids, operator, reason) / (id).';
comment on column penstock.queue.kinds is 'Parts of the queue that can be paused: topic, pool, …';

-- Policy is rows: the numbers a pump runs by. A queue without a row runs by the defaults.
create table penstock.queue_config (
    queue          text    primary key,
    lease_s        integer not null default 30  check (lease_s between 1 and 3600),
    max_attempts   integer not null default 10  check (max_attempts between 1 and 1000),
    backoff_base_s numeric not null default 1   check (backoff_base_s > 0),
    backoff_cap_s  numeric not null default 300 check (backoff_cap_s >= backoff_base_s),
    poll_ms        integer not null default 40  check (poll_ms between 10 and 60000),
    notify         boolean not null default false,
    retention      interval not null default interval '7 days'
                   check (retention >= interval '1 day'),
    fairness       text    not null default 'none' check (fairness in ('none', 'round_robin'))
);
comment on table penstock.queue_config is 'Policy per queue: lease, attempts, back-off, polling.';

create table penstock.worker (
    id           uuid        primary key,
    host         text        not null,
    pid          integer     not null,
    version      text        not null,
    queues       text[]      not null,
    started_at   timestamptz not null default penstock.clock(),
    heartbeat_at timestamptz not null default penstock.clock()
);
comment on table penstock.worker is 'Workers seen lately. For people only: no lease depends on it.';

-- An effect happened, but its worker no longer owned the item. Never ignored, never changed.
create table penstock.late_results (
    id          bigint generated always as identity primary key,
    queue       text        not null,
    item_id     uuid        not null,
    lease_token uuid        not null,
    lease_epoch bigint,
    verdict     text        not null,
    code        text,
    recorded_at timestamptz not null default penstock.clock()
);
create index late_results_item on penstock.late_results (item_id);
comment on table penstock.late_results is 'Outcomes that arrived after the lease was lost.';

-- Between the statement that let an item die, whoever ran it, and the worker that tells of it.
create table penstock.deaths (
    number  bigint      generated always as identity primary key,
    queue   text        not null,
    item_id uuid        not null,
    topic   text        not null,
    attempt integer     not null,
    code    text        not null,
    died_at timestamptz not null default penstock.clock()
);
create index deaths_queue on penstock.deaths (queue, number);
comment on table penstock.deaths is 'Items that died without their worker, not yet told by one.';

-- Target: a queue (outbox) or a part of one (topic/orders.paid, pool/x, destination/acme).
create table penstock.pause (
    target    text        primary key check (target ~ '^[a-z_]+(/.+)?$'),
    reason    text        not null,
    paused_by text        not null,
    paused_at timestamptz not null default penstock.clock(),
    until_at  timestamptz
);
comment on table penstock.pause is 'What claims must leave alone, until when and why.';

create table penstock.schedule (
    job              text        primary key,
    every_s          integer     not null check (every_s between 1 and 31536000),
    enabled          boolean     not null default true,
    next_run_at      timestamptz not null default penstock.clock(),
    lease_token      uuid,
    lease_expires_at timestamptz,
    last_started_at  timestamptz,
    last_finished_at timestamptz,
    last_error       text,
    run_count        bigint      not null default 0,
    product          text,
    check ((lease_token is null) = (lease_expires_at is null))
);
comment on table penstock.schedule is 'Jobs that some worker runs once each time they are due.';
comment on column penstock.schedule.product is 'Whose executors run it; null means any.';

-- Positions (docs/explanation/positions.md). Sequences, because a sequence is not versioned: a
-- forgotten snapshot cannot make reading them slow.
create table penstock.position (
    name       text     primary key,
    next_pos   regclass not null,
    watermark  regclass not null,
    floor      regclass not null,
    settled    regclass not null,
    mark_pos   regclass not null,
    mark_xid   regclass not null,
    mark_at_ms regclass not null,
    swept_ms   regclass not null,
    net_ms     regclass not null,
    due_ms     regclass not null,
    lease_ms   regclass not null,
    sweep_ms   integer  not null default 500 check (sweep_ms between 50 and 60000)
);
comment on table penstock.position is 'Watermark and sweep state of each ready index.';

create table audit.audit_logs (
    id         uuid        primary key default penstock.uuidv7(),
    at         timestamptz not null default penstock.clock(),
    actor      text        not null default session_user,
    role       text        not null default current_setting('role', true),
    operation  text        not null,
    table_name text        not null,
    row_data   jsonb       not null default '{}',
    changed_by uuid,
    clinic_id  uuid,
    reason     text        not null,
    operator   text
);
create index audit_logs_at on audit.audit_logs (at);
comment on table audit.audit_logs is 'Append-only: who did what to which rows, and why.';
comment on column audit.audit_logs.actor is 'The login that acted, as the server knows it.';
comment on column audit.audit_logs.operator is 'The person, as the calling tool stated it.';

alter table penstock.migration    enable row level security;
alter table penstock.catalog      enable row level security;
alter table penstock.queue        enable row level security;
alter table penstock.queue_config enable row level security;
alter table penstock.worker       enable row level security;
alter table penstock.late_results enable row level security;
alter table penstock.deaths       enable row level security;
alter table penstock.pause        enable row level security;
alter table penstock.schedule     enable row level security;
alter table penstock.position     enable row level security;
alter table audit.audit_logs      enable row level security;
