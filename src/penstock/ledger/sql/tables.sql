-- One ticket per resource, one per reservation: two constraints decide every race.
create table public.confirmed_tickets (
    resource_id    uuid        primary key,
    pool_id        text        not null,
    user_id        text        not null,
    confirmed_at   timestamptz not null default now(),
    reservation_id uuid        unique
);
create index confirmed_tickets_user on public.confirmed_tickets (user_id);
comment on table public.confirmed_tickets is 'What was sold, to whom. Rows are never removed.';
comment on column public.confirmed_tickets.reservation_id is
    'The claim that was confirmed; NULL for a caller that knows only resource and user.';

-- Whichever comes first, confirmation or cancellation, is the outcome for ever.
create table public.reservation_outcomes (
    reservation_id uuid        primary key,
    resource_id    uuid,
    outcome        text        not null
        constraint reservation_outcomes_known check (outcome in ('CONFIRMED', 'CANCELLED')),
    at             timestamptz not null default now()
);
comment on table public.reservation_outcomes is 'The final word on each reservation.';

alter table public.confirmed_tickets    enable row level security;
alter table public.reservation_outcomes enable row level security;
