-- The control run's ledger: a ticket per resource, and a second owner is passed over in silence.
create table public.confirmed_tickets (
    resource_id  uuid        primary key,
    pool_id      text        not null,
    user_id      text        not null,
    confirmed_at timestamptz not null default now()
);
comment on table public.confirmed_tickets is 'Control run: what was sold.';

create or replace function public.finalize_transaction(p_payload jsonb) returns void
language sql as $$
    insert into public.confirmed_tickets (resource_id, pool_id, user_id)
    values ((p_payload ->> 'resource_id')::uuid, p_payload ->> 'pool_id', p_payload ->> 'user_id')
    on conflict (resource_id) do nothing
$$;
comment on function public.finalize_transaction(jsonb) is 'Control run: confirm a sale.';
