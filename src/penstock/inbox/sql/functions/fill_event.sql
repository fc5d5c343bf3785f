-- For rows inserted by hand with the seed's columns alone; events from the door have them all.
create or replace function webhook.fill_event() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    new.raw_body := coalesce(new.raw_body, convert_to(coalesce(new.payload::text, ''), 'UTF8'));
    new.body_sha256 := coalesce(new.body_sha256, sha256(new.raw_body));
    new.provider := coalesce(
        new.provider,
        (select w.provider from public.webhook_endpoints w where w.id = new.webhook_id),
        'unknown');
    return new;
end
$$;

comment on function webhook.fill_event() is 'Trigger: what a plain insert leaves out.';
revoke all on function webhook.fill_event() from public;
