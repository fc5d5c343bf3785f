-- One counter per participant. A row and not a sequence: it rolls back with the transaction, so that
-- the numbers have no gaps.
create table public.participant_outbox_sequences (
    participant_id   text   primary key,
    next_sequence_id bigint not null check (next_sequence_id > 0)
) with (fillfactor = 70);
comment on table public.participant_outbox_sequences is 'The next sequence number per participant.';

-- Permanent. The hot tables forget; this one keeps a key and a sequence number used for ever.
create table public.payment_outbox_registry (
    instruction_id  text        not null check (length(instruction_id) between 1 and 200),
    idempotency_key text        not null check (length(idempotency_key) between 1 and 200),
    outbox_id       uuid        not null,
    participant_id  text        not null check (length(participant_id) between 1 and 200),
    sequence_id     bigint      not null check (sequence_id > 0),
    rail_type       text        not null check (length(rail_type) between 1 and 100),
    payload_sha256  bytea       not null check (length(payload_sha256) = 32),
    created_at      timestamptz not null default penstock.clock(),
    sole            boolean     not null default false,
    terminal_state  text        check (terminal_state in ('DISPATCHED', 'FAILED', 'CANCELLED')),
    terminal_at     timestamptz,
    discarded_at    timestamptz,
    reconciled_at   timestamptz,
    first_sent_at   timestamptz,
    replay_count    integer     not null default 0,
    primary key (instruction_id, idempotency_key),
    constraint payment_outbox_registry_outbox unique (outbox_id),
    constraint payment_outbox_registry_sequence unique (participant_id, sequence_id),
    check ((terminal_state is null) = (terminal_at is null))
) with (fillfactor = 80);
create unique index payment_outbox_registry_sole on public.payment_outbox_registry (instruction_id)
    where sole;
comment on table public.payment_outbox_registry is
    'Every payment ever enqueued: key, sequence, digest of the payload, and how it ended.';
comment on column public.payment_outbox_registry.sole is
    'Enqueued while the policy allowed one payment per instruction.';
comment on column public.payment_outbox_registry.first_sent_at is
    'When the key was first shown to the rail: its window runs from here.';
comment on column public.payment_outbox_registry.reconciled_at is
    'When a person found that a failed payment had not been paid.';

create table public.payment_outbox_pending (
    outbox_id       uuid        primary key default penstock.uuidv7(),
    instruction_id  text        not null,
    participant_id  text        not null,
    sequence_id     bigint      not null,
    idempotency_key text        not null,
    rail_type       text        not null,
    payload         jsonb       not null,
    attempt_count   integer     not null default 0 check (attempt_count >= 0),
    next_attempt_at timestamptz not null default penstock.clock(),
    created_at      timestamptz not null default penstock.clock(),
    headers         jsonb       not null default '{}' check (jsonb_typeof(headers) = 'object'),
    uncounted       integer     not null default 0,
    claim_code      text,
    first_sent_at   timestamptz,
    constraint payment_outbox_pending_sequence unique (participant_id, sequence_id),
    constraint payment_outbox_pending_key unique (instruction_id, idempotency_key)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
create index ix_pending_due on public.payment_outbox_pending (next_attempt_at, created_at);
comment on table public.payment_outbox_pending is 'Payments that wait for their (next) dispatch.';
comment on column public.payment_outbox_pending.attempt_count is
    'The last attempt_no written; rows of attempts, not dispatches.';
comment on column public.payment_outbox_pending.next_attempt_at is
    'When it is due; infinity while an operator holds it.';
comment on column public.payment_outbox_pending.uncounted is
    'How many of those rows do not count against the limit: released, or before a replay.';
comment on column public.payment_outbox_pending.claim_code is
    'Goes into error_code of the next DISPATCHING row: why it is dispatched again.';

create table public.payment_outbox_inflight (
    outbox_id        uuid        primary key,
    instruction_id   text        not null,
    participant_id   text        not null,
    sequence_id      bigint      not null,
    idempotency_key  text        not null,
    rail_type        text        not null,
    payload          jsonb       not null,
    headers          jsonb       not null,
    created_at       timestamptz not null,
    attempt_no       integer     not null,
    uncounted        integer     not null,
    claimed_at       timestamptz not null,
    lease_token      uuid,
    lease_epoch      bigint      generated always as ((attempt_no + 1) / 2) stored,
    lease_owner      uuid,
    lease_expires_at timestamptz,
    phase            text        not null default 'claimed' check (phase in ('claimed', 'sent')),
    sent_at          timestamptz,
    first_sent_at    timestamptz,
    late_at          timestamptz,
    late_reference   text,
    late_code        text,
    held_at          timestamptz,
    held_token       uuid,
    error_code       text,
    error_message    text        check (length(error_message) <= 2000),
    constraint payment_outbox_inflight_participant unique (participant_id),
    check ((lease_token is null) = (lease_expires_at is null)),
    check ((held_at is null) = (lease_token is not null))
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
create index payment_outbox_inflight_lease on public.payment_outbox_inflight (lease_expires_at)
    where held_at is null;
create index ix_attempts_dispatching_age on public.payment_outbox_inflight (claimed_at);
comment on table public.payment_outbox_inflight is
    'Payments being dispatched, at most one per participant, and those held until resolved.';
comment on column public.payment_outbox_inflight.phase is
    'sent from just before the rail is called: from then on the effect may have happened.';
comment on column public.payment_outbox_inflight.late_at is
    'When an earlier attempt reported success after it had lost its lease.';

-- Monthly by the time inside the UUIDv7, because only then can the numbering be unique.
create table public.payment_outbox_attempts (
    attempt_id      uuid        not null default penstock.uuidv7(),
    outbox_id       uuid        not null,
    instruction_id  text        not null,
    participant_id  text        not null,
    sequence_id     bigint      not null,
    idempotency_key text        not null,
    rail_type       text        not null,
    payload         jsonb       not null,
    attempt_no      integer     not null check (attempt_no > 0),
    state           public.outbox_attempt_state not null,
    claimed_at      timestamptz not null default penstock.clock(),
    completed_at    timestamptz,
    rail_reference  text,
    rail_code       text,
    error_code      text,
    error_message   text        check (length(error_message) <= 2000),
    latency_ms      integer,
    created_at      timestamptz not null default penstock.clock(),
    lease_token     uuid,
    lease_owner     uuid,
    primary key (attempt_id, outbox_id),
    constraint payment_outbox_attempts_number unique (outbox_id, attempt_no)
) partition by range (outbox_id);
create table public.payment_outbox_attempts_default
    partition of public.payment_outbox_attempts default;
create index ix_attempts_by_outbox on public.payment_outbox_attempts (outbox_id, claimed_at desc);
comment on table public.payment_outbox_attempts is
    'Every dispatch and its outcome, append-only. Odd numbers are dispatches, even ones outcomes.';
comment on table public.payment_outbox_attempts_default is
    'Catches rows of a month without a partition.';

create table public.payment_rails (
    rail_type          text     primary key check (length(rail_type) between 1 and 100),
    idempotent         boolean  not null default false,
    idempotency_window interval check (idempotency_window > interval '0'),
    timeout_ms         integer  not null default 30000 check (timeout_ms between 100 and 600000),
    max_concurrency    integer  check (max_concurrency > 0),
    status_query       boolean  not null default false,
    on_failed          text     not null default 'skip' check (on_failed in ('skip', 'block')),
    destination_keys   text[]   not null default '{}',
    check (idempotent = (idempotency_window is not null)),
    constraint payment_rails_window_outlasts_call check (
        idempotency_window > make_interval(secs => timeout_ms / 1000.0))
);
comment on table public.payment_rails is
    'Policy per rail. A rail without a row has no idempotency: nothing sent on it is sent again.';

create table public.payment_rail_codes (
    rail_type text not null references public.payment_rails on delete cascade,
    code      text not null check (length(code) between 1 and 100),
    class     text not null check (class in ('OK', 'RETRY', 'REJECT', 'UNKNOWN')),
    primary key (rail_type, code)
);
comment on table public.payment_rail_codes is
    'What each answer of a rail means. A code that is not listed is UNKNOWN.';

create table public.payment_chain (
    participant_id text   not null,
    link_no        bigint not null,
    attempt_id     uuid   not null,
    outbox_id      uuid   not null,
    prev_hash      bytea  not null,
    hash           bytea  not null,
    primary key (participant_id, link_no),
    constraint payment_chain_attempt unique (attempt_id)
);
comment on table public.payment_chain is
    'One link per attempts row, each holding the digest of the row and of the link before it.';

create table penstock_payments.chain_mark (
    one      boolean primary key default true check (one),
    floor_id uuid    not null default '00000000-0000-0000-0000-000000000000',
    mark_id  uuid,
    mark_xid xid8
);
insert into penstock_payments.chain_mark default values;
comment on table penstock_payments.chain_mark is 'Up to where every attempts row has its link.';

create table penstock_payments.dead_letters (
    outbox_id      uuid        primary key,
    participant_id text        not null,
    sequence_id    bigint      not null,
    rail_type      text        not null,
    error_code     text,
    error_message  text,
    attempt_no     integer     not null,
    blocks         boolean     not null,
    created_at     timestamptz not null,
    dead_at        timestamptz not null,
    payload        jsonb       not null,
    headers        jsonb       not null
);
create index dead_letters_block on penstock_payments.dead_letters (participant_id) where blocks;
comment on table penstock_payments.dead_letters is
    'Failed payments that nobody has dealt with yet. The record itself is in the attempts.';

create table penstock_payments.policy (
    one                boolean primary key default true check (one),
    unique_instruction boolean not null default false,
    second_approver    boolean not null default false,
    known_rails_only   boolean not null default false
);
insert into penstock_payments.policy default values;
comment on table penstock_payments.policy is 'Switches of the product; one row.';

create table penstock_payments.approvals (
    id          uuid        primary key default penstock.uuidv7(),
    outbox_id   uuid        not null,
    approved_by text        not null default session_user,
    approved_at timestamptz not null default penstock.clock(),
    used_at     timestamptz
);
create index approvals_open on penstock_payments.approvals (outbox_id) where used_at is null;
comment on table penstock_payments.approvals is 'Second signatures for replays and resolutions.';

create table penstock_payments.currencies (
    code        text    primary key check (code ~ '^[A-Z]{3}$'),
    minor_units integer not null check (minor_units between 0 and 4)
);
comment on table penstock_payments.currencies is 'Active ISO 4217 currencies and their decimals.';
insert into penstock_payments.currencies (code, minor_units)
select code, 2 from unnest(string_to_array(
    'AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BMD BND BOB BOV BRL BSD BTN BWP BYN BZD CAD CDF '
    'CHE CHF CHW CNY COP COU CRC CUP CVE CZK DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD '
    'GTQ GYD HKD HNL HTG HUF IDR ILS INR IRR JMD KES KGS KHR KPW KYD KZT LAK LBP LKR LRD LSL MAD MDL '
    'MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MXV MYR MZN NAD NGN NIO NOK NPR NZD PAB PEN PGK PHP PKR '
    'PLN QAR RON RSD RUB SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD SSP STN SVC SYP SZL THB TJS TMT TOP '
    'TRY TTD TWD TZS UAH USD USN UYU UZS VED VES WST XCD XCG YER ZAR ZMW ZWG', ' ')) as code
union all
select code, 0 from unnest(string_to_array(
    'BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF', ' ')) as code
union all
select code, 3 from unnest(string_to_array('BHD IQD JOD KWD LYD OMR TND', ' ')) as code
union all
select code, 4 from unnest(string_to_array('CLF UYW', ' ')) as code;

insert into penstock.queue_config (queue, lease_s, max_attempts, poll_ms, notify)
values ('payments', 60, 10, 250, true) on conflict do nothing;

alter table public.participant_outbox_sequences    enable row level security;
alter table public.payment_outbox_registry         enable row level security;
alter table public.payment_outbox_pending          enable row level security;
alter table public.payment_outbox_inflight         enable row level security;
alter table public.payment_outbox_attempts         enable row level security;
alter table public.payment_outbox_attempts_default enable row level security;
alter table public.payment_rails                   enable row level security;
alter table public.payment_rail_codes              enable row level security;
alter table public.payment_chain                   enable row level security;
alter table penstock_payments.chain_mark           enable row level security;
alter table penstock_payments.dead_letters         enable row level security;
alter table penstock_payments.policy               enable row level security;
alter table penstock_payments.approvals            enable row level security;
alter table penstock_payments.currencies           enable row level security;
