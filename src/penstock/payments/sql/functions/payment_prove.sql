-- One row per violation; none means that the invariants hold. Reads whole tables in one snapshot.
create or replace function public.payment_prove()
returns table (invariant text, participant_id text, outbox_id uuid, detail text)
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
    select * from penstock_payments.prove_identity()
    union all
    select * from penstock_payments.prove_attempts()
    union all
    select * from penstock_payments.prove_places()
$$;

comment on function public.payment_prove() is
    'Violations of the invariants of payments (M2 to M6, M9); no rows mean that they hold.';
revoke all on function public.payment_prove() from public;
grant execute on function public.payment_prove() to penstock_operator, penstock_auditor;
