-- The hot table holds only what is still to be done; finished rows move to the archive in the same
-- statement that finishes them. A row is in exactly one state, and a constraint says so:
--   ready (pos), leased (processing_token), waiting (next_attempt_at), dead (dead_at), held (held_at),
--   behind (turn): another event of the same ordering key goes first,
--   fanned (fanned_at): its deliveries, rows of their own with it as parent, are under way
-- A ready row may be under a joint lease: then outbox_joint_leases names it, and nothing is written here
-- until its attempt ends.
-- Of each ordering key one row at most is the head: in any state but behind, and not parked. Only
-- heads have positions, so a claim reads keyed and keyless events alike and never looks at a line.
create table public.outbox (
    seq              bigint      generated always as identity primary key,
    id               uuid        not null default penstock.uuidv7() unique,
    tenant_id        uuid        default app.current_tenant(),
    topic            text        not null check (length(topic) between 1 and 200),
    payload          jsonb       not null
        constraint outbox_payload_size check (pg_column_size(payload) <= 1048576),
    headers          jsonb       not null default '{}' check (jsonb_typeof(headers) = 'object'),
    created_at       timestamptz not null default penstock.clock(),
    ordering_key     text        check (length(ordering_key) between 1 and 200),
    key_hash         bigint,
    turn             bigint,
    deliver_at       timestamptz,
    pos              bigint      default nextval('penstock.outbox_next'),
    processing_token uuid,
    lease_epoch      bigint      not null default 0,
    lease_owner      uuid,
    lease_expires_at timestamptz,
    attempts         integer     not null default 0,
    total_attempts   integer     not null default 0,
    replay_count     integer     not null default 0,
    next_attempt_at  timestamptz,
    delivered_at     timestamptz check (delivered_at is null),
    dead_at          timestamptz,
    held_at          timestamptz,
    parked_at        timestamptz,
    route            text,
    event_id         uuid,
    event_topic      text,
    parent           bigint,
    fanned_at        timestamptz,
    open_deliveries  integer,
    relay            text,
    error_code       text,
    error            text        check (length(error) <= 2000),
    constraint outbox_one_state check (
        num_nonnulls(pos, processing_token, next_attempt_at, dead_at, held_at, turn, fanned_at) = 1),
    constraint outbox_route_whole check (
        (route is null) = (event_topic is null) and (parent is null) = (event_id is null)
        and (fanned_at is null) = (open_deliveries is null)),
    constraint outbox_key_whole check (
        (ordering_key is null) = (key_hash is null)
        and (key_hash is not null or num_nonnulls(turn, parked_at) = 0)
        and (parked_at is null or num_nonnulls(dead_at, held_at, fanned_at) = 1)),
    constraint outbox_lease_whole check (
        (processing_token is null) = (lease_expires_at is null))
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

create index idx_outbox_claimable on public.outbox (pos) where pos is not null;
create index idx_outbox_token on public.outbox (processing_token)
    where processing_token is not null;
-- By its own column, not by the token: else a look-up by token might take this index, and read every
-- lease there is (seen after an ANALYZE that found few).
create index outbox_lease_end on public.outbox (lease_expires_at)
    where lease_expires_at is not null;
create index outbox_due on public.outbox (next_attempt_at) where next_attempt_at is not null;
create index outbox_suspect on public.outbox (seq)
    where error_code = 'ZOMBIE_SUSPECT' and next_attempt_at is null
      and dead_at is null and held_at is null;
create index outbox_dead on public.outbox (dead_at) where dead_at is not null;
create index outbox_held on public.outbox (held_at) where held_at is not null;
create index outbox_fair on public.outbox (tenant_id, pos)
    where pos is not null and tenant_id is not null;
create unique index outbox_head on public.outbox (key_hash)
    where key_hash is not null and turn is null and parked_at is null;
create index outbox_routed on public.outbox (topic, pos)
    where pos is not null and route is not null;
create index outbox_aside on public.outbox (topic, seq)
    where next_attempt_at = '9999-12-31 00:00:00+00';
-- For shares of tenants; without tenants they are empty.
create index outbox_routed_fair on public.outbox (topic, tenant_id, pos)
    where pos is not null and route is not null and tenant_id is not null;
create index outbox_aside_fair on public.outbox (topic, tenant_id, seq)
    where next_attempt_at = '9999-12-31 00:00:00+00' and tenant_id is not null;
create index outbox_parent on public.outbox (parent) where parent is not null;
create index outbox_line on public.outbox (key_hash, turn) where turn is not null;

comment on table public.outbox is 'Events not yet delivered. Delivered ones are in outbox_archive.';
comment on column public.outbox.pos is 'Claim position; set exactly while the row is ready.';
comment on column public.outbox.key_hash is 'Hash of tenant and ordering key; names the line.';
comment on column public.outbox.turn is 'Place in the line of its key; set exactly while behind.';
comment on column public.outbox.deliver_at is 'Not before this time, for an event that was behind.';
comment on column public.outbox.parked_at is
    'Its key goes on without it: set aside by an operator, or handed on to its deliveries.';
comment on column public.outbox.route is 'The route it takes; its topic then names that route.';
comment on column public.outbox.event_topic is 'The topic it was published to, where topic is a route.';
comment on column public.outbox.event_id is 'Of a delivery: the event that is delivered.';
comment on column public.outbox.parent is 'Of a delivery: the row of its event.';
comment on column public.outbox.open_deliveries is 'Of an event with several routes: how many are left.';
comment on column public.outbox.next_attempt_at is 'When a waiting row becomes ready again.';
comment on column public.outbox.delivered_at is 'Always null here; the archive has the time.';

-- One lease for all the events of a claim, whose rows are not touched: whoever looks for ready ones
-- leaves out what is named here. The numbers are given one claim after the other, so that there is one
-- below which all leases have ended (penstock.outbox_joint_floor).
create sequence penstock.outbox_taken minvalue 0 start 0;
select setval('penstock.outbox_taken', 0);
create sequence penstock.outbox_joint_xid minvalue 0 start 0;
select setval('penstock.outbox_joint_xid', 0);
create sequence penstock.outbox_joint_next;
create sequence penstock.outbox_joint_floor minvalue 0 start 0;
select setval('penstock.outbox_joint_floor', 0);
create table public.outbox_joint_leases (
    token      uuid           primary key,
    number     bigint         not null unique default nextval('penstock.outbox_joint_next'),
    owner      uuid,
    seqs       int8multirange not null,
    upto       bigint         not null,
    expires_at timestamptz    not null
) with (fillfactor = 50);
create index outbox_joint_leases_end on public.outbox_joint_leases (expires_at);
comment on table public.outbox_joint_leases is 'Claims whose events share one lease.';
comment on column public.outbox_joint_leases.seqs is 'The events under the lease that have not ended.';
comment on column public.outbox_joint_leases.upto is
    'The highest position among them: an event that has come back since has a higher one.';

create table public.outbox_archive (
    seq            bigint      not null,
    id             uuid        not null,
    tenant_id      uuid,
    topic          text        not null,
    payload        jsonb       not null,
    headers        jsonb       not null,
    created_at     timestamptz not null,
    ordering_key   text,
    lease_token    uuid,
    lease_epoch    bigint      not null,
    total_attempts integer     not null,
    replay_count   integer     not null,
    state          text        not null
        check (state in ('DELIVERED', 'DISCARDED', 'CANCELLED', 'NO_ROUTE')),
    delivered_at   timestamptz not null,
    route          text,
    event_id       uuid,
    event_topic    text
) partition by range (delivered_at);
create table public.outbox_archive_default partition of public.outbox_archive default;
-- Rows come in the order of their time, so a few bytes for every megabyte are enough to find them by it.
create index outbox_archive_time on public.outbox_archive using brin (delivered_at)
    with (pages_per_range = 16, autosummarize = on);
create index outbox_archive_id on public.outbox_archive (id);
create index outbox_archive_default_time on public.outbox_archive_default (delivered_at);
create index outbox_archive_event on public.outbox_archive (event_id) where event_id is not null;

comment on table public.outbox_archive is 'Finished events by day; retention drops whole days.';
comment on table public.outbox_archive_default is 'Catches rows of a day without a partition.';

-- One row for every attempt that did not end in the archive: retry, reject, unknown, zombie, release.
create table public.outbox_attempts (
    seq         bigint      not null,
    event_id    uuid        not null,
    lease_token uuid        not null,
    lease_epoch bigint      not null,
    lease_owner uuid,
    ended_at    timestamptz not null default penstock.clock(),
    outcome     text        not null
        check (outcome in ('RETRY', 'REJECT', 'UNKNOWN', 'ZOMBIE', 'RELEASED')),
    error_code  text,
    error       text
) partition by range (ended_at);
create table public.outbox_attempts_default partition of public.outbox_attempts default;
create index outbox_attempts_event on public.outbox_attempts (event_id);
create index outbox_attempts_default_time on public.outbox_attempts_default (ended_at);

comment on table public.outbox_attempts is 'How each unsuccessful attempt ended; append-only.';
comment on table public.outbox_attempts_default is 'Catches rows of a day without a partition.';

-- Lines that may be without a head: a producer saw the old head while it was being finished.
create table public.outbox_key_checks (
    id       bigint generated always as identity primary key,
    key_hash bigint not null
);
comment on table public.outbox_key_checks is 'Ordering keys that housekeeping must look at.';

create table public.outbox_destinations (
    name               text        primary key check (name ~ '^[a-zA-Z0-9][a-zA-Z0-9_.:-]{0,99}$'),
    kind               text        not null
        check (kind in ('http', 'kafka', 'nats', 'sql', 'python', 'stdout')),
    config             jsonb       not null default '{}' check (jsonb_typeof(config) = 'object'),
    secret_refs        text[]      not null default '{}',
    concurrency        integer     not null default 8 check (concurrency between 1 and 1000),
    rate_per_s         numeric     check (rate_per_s > 0 and rate_per_s <= 1000000000),
    rate_left          numeric,
    rate_at            timestamptz,
    enabled            boolean     not null default true,
    version            bigint      not null default 1,
    breaker            text        not null default 'closed'
        check (breaker in ('closed', 'open', 'half_open')),
    breaker_after      integer     not null default 5 check (breaker_after between 1 and 1000),
    breaker_pause_s    numeric     not null default 5
        check (breaker_pause_s > 0 and breaker_pause_s <= 86400),
    breaker_failures   integer     not null default 0,
    breaker_opens      integer     not null default 0,
    breaker_opened_at  timestamptz,
    breaker_until      timestamptz,
    breaker_window_at  timestamptz not null default '-infinity',
    breaker_window_ok  integer     not null default 0,
    breaker_window_bad integer     not null default 0,
    last_error         text        check (length(last_error) <= 60),
    last_error_at      timestamptz,
    fault              text        check (length(fault) <= 500),
    fault_at           timestamptz,
    created_at         timestamptz not null default penstock.clock(),
    constraint outbox_destinations_breaker_whole check (
        (breaker = 'closed') = (breaker_until is null))
) with (fillfactor = 50);
comment on table public.outbox_destinations is 'Where events go: configured sinks.';
comment on column public.outbox_destinations.secret_refs is
    'Names of secrets that the worker looks up; never the secrets.';
comment on column public.outbox_destinations.version is
    'Grows with every change by a person: what a worker reports of an older one is not of this one.';
comment on column public.outbox_destinations.rate_left is
    'What was left of the rate at rate_at; all workers draw from it.';
comment on column public.outbox_destinations.breaker_after is
    'How many failures in a row open the breaker.';
comment on column public.outbox_destinations.breaker_pause_s is
    'How long it stays open the first time; twice as long each further time, five minutes at most.';
comment on column public.outbox_destinations.breaker_failures is 'Failures in a row, of all workers.';
comment on column public.outbox_destinations.breaker_until is
    'While open: when one delivery is let through. While half open: until when its answer may come.';
comment on column public.outbox_destinations.fault is
    'Why a worker could not use it as configured; of interest while fault_at is recent.';

create table public.outbox_routes (
    route       text        primary key check (length(route) between 1 and 200),
    topic       text        not null check (length(topic) between 1 and 200),
    filter      jsonpath,
    filter_text text,
    destination text        not null references public.outbox_destinations (name),
    enabled     boolean     not null default true,
    created_at  timestamptz not null default penstock.clock()
);
create index outbox_routes_destination on public.outbox_routes (destination);
comment on table public.outbox_routes is 'Which events go to which destination.';
comment on column public.outbox_routes.topic is 'A topic, or a pattern in which * stands for anything.';
comment on column public.outbox_routes.filter_text is 'The filter as it was written.';
comment on column public.outbox_routes.filter is 'A predicate over the payload, such as $.amount > 100.';

-- What removed routes leave behind: up to position everything is cancelled.
create table public.outbox_removals (
    route      text        primary key,
    position   bigint      not null default 0,
    upto       bigint      not null,
    cancelled  bigint      not null default 0,
    removed_at timestamptz not null default penstock.clock(),
    audit_id   uuid        not null,
    reason     text        not null,
    operator   text
);
comment on table public.outbox_removals is 'Removed routes whose deliveries are not all cancelled yet.';
comment on column public.outbox_removals.upto is 'The last event that can have taken the route.';

create table public.outbox_schemas (
    topic      text        not null,
    version    integer     not null check (version >= 1),
    schema     jsonb       not null,
    changed_at timestamptz not null default penstock.clock(),
    primary key (topic, version)
);
comment on table public.outbox_schemas is 'JSON Schema of the payloads of each topic, by version.';

-- Archived events that are sent once more, to one destination: up to position everything is done.
create table public.outbox_resends (
    id           uuid        primary key,
    destination  text        not null,
    topic        text,
    event_ids    uuid[],
    since_at     timestamptz not null,
    until_at     timestamptz not null,
    missing      boolean     not null,
    position_at  timestamptz not null,
    position_seq bigint      not null default 0,
    step         interval    not null default interval '1 second',
    unsettled    text[]      not null default '{}',
    seen         bigint      not null default 0,
    sent         bigint      not null default 0,
    created_at   timestamptz not null default penstock.clock(),
    ended_at     timestamptz,
    audit_id     uuid        not null
);
comment on table public.outbox_resends is 'Resends and how far each has come.';
comment on column public.outbox_resends.missing is 'Whether only what was not delivered there is sent.';
comment on column public.outbox_resends.unsettled is
    'Transactions that were archiving when it began; what they commit late belongs to it.';
comment on column public.outbox_resends.step is 'How far the last step looked ahead.';

-- What has gone wrong lately, by kind: ten thousand dead events of one cause are one alert with a
-- count. What is not in an alert yet is counted in unsent.
create table public.outbox_alerts (
    queue       text        not null default 'outbox',
    topic       text        not null,
    state       text        not null check (state in ('DEAD', 'HELD')),
    fingerprint text        not null,
    error_code  text,
    error       text,
    total       bigint      not null,
    unsent      bigint      not null,
    examples    uuid[]      not null,
    first_at    timestamptz not null,
    last_at     timestamptz not null,
    alerted_at  timestamptz,
    event_id    uuid,
    primary key (queue, topic, state, fingerprint)
);
create index outbox_alerts_last on public.outbox_alerts (last_at);
comment on table public.outbox_alerts is 'Kinds of dead and held items, and when each was alerted.';
comment on column public.outbox_alerts.unsent is 'How many are in no alert yet.';
comment on column public.outbox_alerts.alerted_at is 'When the last alert went out, or will.';
comment on column public.outbox_alerts.event_id is 'The last alert, an event of penstock.alert.';

-- Outlives the event: a repetition is recognised for a month, delivered or not.
create table public.outbox_dedupe (
    dedupe_key text        not null,
    topic      text        not null,
    tenant_id  uuid,
    event_id   uuid        not null,
    digest     bytea       not null,
    created_at timestamptz not null default penstock.clock(),
    constraint outbox_dedupe_key unique nulls not distinct (dedupe_key, topic, tenant_id)
);
create index outbox_dedupe_age on public.outbox_dedupe (created_at);
comment on table public.outbox_dedupe is 'Dedupe keys of the last month and the event of each.';

create table public.outbox_functions (
    name text primary key
);
comment on table public.outbox_functions is 'The only functions that a destination may name.';

alter table public.outbox_functions        enable row level security;
alter table public.outbox_destinations     enable row level security;
alter table public.outbox_routes           enable row level security;
alter table public.outbox_schemas          enable row level security;
alter table public.outbox_removals         enable row level security;
alter table public.outbox_dedupe           enable row level security;
alter table public.outbox_alerts           enable row level security;
alter table public.outbox_resends          enable row level security;
alter table public.outbox_key_checks       enable row level security;
alter table public.outbox_joint_leases     enable row level security;
alter table public.outbox                  enable row level security;
alter table public.outbox_archive          enable row level security;
alter table public.outbox_archive_default  enable row level security;
alter table public.outbox_attempts         enable row level security;
alter table public.outbox_attempts_default enable row level security;

-- Tables in the shape of the relay's decision record. A row is published as an event of the same id,
-- to a topic named like the table; status, sent_at and retry_count follow what becomes of it.
create table public.outbox_relays (
    name       text        primary key,
    created_at timestamptz not null default penstock.clock()
);
comment on table public.outbox_relays is 'Relay tables, by schema and name.';
alter table public.outbox_relays enable row level security;

create table payments.outbox_transfers (
    id           uuid        primary key default penstock.uuidv7(),
    payload      jsonb       not null,
    status       text        not null default 'PENDING'
        check (status in ('PENDING', 'SENT', 'FAILED')),
    created_at   timestamptz not null default penstock.clock(),
    sent_at      timestamptz check ((sent_at is not null) = (status = 'SENT')),
    retry_count  integer     not null default 0,
    ordering_key text,
    last_error   text
) with (fillfactor = 80);
create index outbox_transfers_sent on payments.outbox_transfers (sent_at) where status = 'SENT';
create index outbox_transfers_open on payments.outbox_transfers (created_at) where status <> 'SENT';
comment on table payments.outbox_transfers is 'Transfers to be relayed, and what became of each.';
alter table payments.outbox_transfers enable row level security;

create table ledger.outbox_ledger (like payments.outbox_transfers including all);
comment on table ledger.outbox_ledger is 'Ledger postings to be relayed, and what became of each.';
alter table ledger.outbox_ledger enable row level security;

-- Who is who, per tenant: an external id or an e-mail address (in any case) means one contact.
create table public.contact_identities (
    id         uuid        primary key default penstock.uuidv7(),
    tenant_id  uuid        not null,
    contact_id uuid        not null,
    type       text        not null check (length(type) between 1 and 60),
    value      text        not null check (value = btrim(value) and length(value) between 1 and 500),
    created_at timestamptz not null default penstock.clock()
);
create unique index uniq_identity_external on public.contact_identities (tenant_id, type, value)
    where type = 'external_id';
create unique index uniq_identity_email_lower
    on public.contact_identities (tenant_id, type, lower(value)) where type = 'email';
create index contact_identities_contact on public.contact_identities (tenant_id, contact_id);
comment on table public.contact_identities is 'External ids and addresses of contacts, by tenant.';
alter table public.contact_identities enable row level security;

insert into penstock.queue_config (queue) values ('outbox') on conflict do nothing;
