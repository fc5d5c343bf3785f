-- LOGGED on purpose: an unlogged inventory is empty after a crash while its queue is not. Ids are
-- compared byte by byte (collation C): a claim spends much of its time comparing them.
-- `ord` is the place in the pool's line of free slots. It is renewed whenever a slot comes on
-- offer, under the pool's lock, so that order of ord is order of commit and nothing can appear
-- below the pool's watermark.
create sequence penstock_intake.slot_ord;

create table public.inventory_slots (
    id                uuid               primary key default gen_random_uuid(),
    pool_id           text collate "C"   not null check (length(pool_id) between 1 and 200),
    status            public.slot_status not null default 'AVAILABLE',
    locked_by         text collate "C"   check (length(locked_by) between 1 and 200),
    locked_at         timestamptz,
    ord               bigint             not null,
    reservation_id    uuid,
    request_id        text collate "C"   check (length(request_id) between 1 and 200),
    user_nth          bigint,
    hold_expires_at   timestamptz,
    validated_at      timestamptz,
    commit_started_at timestamptz,
    sent_at           timestamptz,
    consumed_at       timestamptz,
    headers           jsonb              check (jsonb_typeof(headers) = 'object'),
    constraint inventory_slots_reserved_whole check (
        (status = 'AVAILABLE') = (reservation_id is null)
        and (status = 'AVAILABLE') = (locked_by is null)
        and (status <> 'AVAILABLE' or user_nth is null)),
    -- A resource for which a commit was ever started is never offered again.
    constraint inventory_slots_never_reoffered check (
        status <> 'AVAILABLE' or commit_started_at is null)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

create index idx_available_slots on public.inventory_slots (pool_id, status)
    where status = 'AVAILABLE';
create index inventory_slots_free on public.inventory_slots (pool_id, ord)
    where status = 'AVAILABLE';
-- The arbiter of the limit per user: of two claims that see the same state, one fails here. Slots
-- of pools without a limit are not numbered and cost nothing here.
create unique index inventory_slots_user on public.inventory_slots (pool_id, locked_by, user_nth)
    where user_nth is not null;
create unique index inventory_slots_request
    on public.inventory_slots (pool_id, locked_by, request_id) where request_id is not null;
create index inventory_slots_reservation on public.inventory_slots (reservation_id)
    where reservation_id is not null;
create index inventory_slots_locked_at on public.inventory_slots (locked_at)
    where status = 'RESERVED';
create index inventory_slots_hold on public.inventory_slots (hold_expires_at)
    where status = 'RESERVED' and hold_expires_at is not null;

comment on table public.inventory_slots is 'The things on sale, one row each.';
comment on column public.inventory_slots.ord is 'Place in the line of free slots.';
comment on column public.inventory_slots.user_nth is 'Which of the user''s slots it is.';
comment on column public.inventory_slots.commit_started_at is
    'Written before the first call to the ledger: from then on only the ledger can undo it.';
comment on column public.inventory_slots.sent_at is
    'Written before the first call to a commit webhook: from then on a refusal proves nothing.';

-- No foreign key to slots: config may be deployed before inventory.
create table public.engine_config (
    pool_id                text    primary key check (length(pool_id) between 1 and 200),
    batch_size             int     not null default 100 check (batch_size between 1 and 1000),
    visibility_timeout_sec int     not null default 45
                                   check (visibility_timeout_sec between 1 and 3600),
    max_retries            int     not null default 10 check (max_retries between 0 and 1000),
    is_active              boolean not null default true,
    validation_webhook_url text,
    commit_rpc_name        text    not null default 'finalize_transaction',
    commit_webhook_url     text
);
comment on table public.engine_config is 'How each pool is processed.';

create table public.engine_metrics (
    id              bigint      generated always as identity primary key,
    captured_at     timestamptz not null default now(),
    pool_id         text        not null,
    available_slots int         not null,
    reserved_slots  int         not null,
    consumed_slots  int         not null,
    queue_depth     int         not null,
    dlq_depth       int         not null default 0
);
create index idx_metrics_pool_ts on public.engine_metrics (pool_id, captured_at desc);
create index engine_metrics_captured_at on public.engine_metrics (captured_at);
comment on table public.engine_metrics is 'Counts per active pool, taken every minute.';

-- When a pool sells and to whom how much. A pool without a row is open and without limits.
create table public.intake_pools (
    pool_id      text        primary key check (length(pool_id) between 1 and 200),
    opens_at     timestamptz,
    closes_at    timestamptz,
    max_per_user int         check (max_per_user between 1 and 1000),
    hold_s       int         check (hold_s between 1 and 2592000),
    updated_at   timestamptz not null default penstock.clock(),
    constraint intake_pools_in_order check (closes_at > opens_at)
);
comment on table public.intake_pools is 'Sale policy: schedule, limit per user, hold time.';

-- Marks are sequences: they have no versions, so an old snapshot does not slow them.
create table penstock_intake.pool_mark (
    pool_id   text     primary key,
    watermark regclass not null
);
comment on table penstock_intake.pool_mark is 'Below the watermark no slot of the pool is free.';

create table penstock_intake.pool_stock (
    pool_id text   primary key,
    stocked bigint not null
);
comment on table penstock_intake.pool_stock is 'How many slots a pool was given; prove compares.';

create table penstock_intake.retired_slots (
    id                uuid        primary key,
    pool_id           text        not null,
    replaced_by       uuid        not null,
    locked_by         text        not null,
    reservation_id    uuid        not null,
    request_id        text,
    locked_at         timestamptz,
    commit_started_at timestamptz not null,
    retired_at        timestamptz not null default penstock.clock(),
    reason            text        not null
);
create index retired_slots_reservation on penstock_intake.retired_slots (reservation_id);
comment on table penstock_intake.retired_slots is
    'Slots whose commit had started when they were released; a new id took their place.';

-- Messages below the queue's watermark that are ready again: lease ended, retry due, late commit.
create table penstock_intake.returned (
    msg_id bigint primary key
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
comment on table penstock_intake.returned is 'Ready messages that the watermark has passed.';

select pgmq.create('intake_queue');
select pgmq.create('intake_dlq');
alter table pgmq.q_intake_queue set (autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_cost_delay = 0);
create index intake_queue_reread on pgmq.q_intake_queue (vt) where read_ct > 0;
create index intake_dlq_resource on pgmq.q_intake_dlq ((message ->> 'resource_id'));
create index intake_dlq_reservation on pgmq.q_intake_dlq ((message ->> 'reservation_id'));
create index intake_dlq_pool on pgmq.q_intake_dlq ((message ->> 'pool_id'), msg_id);

alter table public.inventory_slots        enable row level security;
alter table public.engine_config          enable row level security;
alter table public.engine_metrics         enable row level security;
alter table public.intake_pools           enable row level security;
alter table penstock_intake.pool_mark     enable row level security;
alter table penstock_intake.pool_stock    enable row level security;
alter table penstock_intake.retired_slots enable row level security;
alter table penstock_intake.returned      enable row level security;
alter table pgmq.q_intake_queue           enable row level security;
alter table pgmq.q_intake_dlq             enable row level security;
alter table pgmq.a_intake_queue           enable row level security;
alter table pgmq.a_intake_dlq             enable row level security;
