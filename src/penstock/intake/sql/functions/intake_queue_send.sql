create or replace function public.intake_queue_send(p_payload jsonb) returns bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    if jsonb_typeof(p_payload) is distinct from 'object' then
        raise exception using errcode = '22023', message = 'a message is a JSON object';
    end if;
    return (select s from pgmq.send('intake_queue', p_payload, null::jsonb, penstock.clock()) as s);
end
$$;

comment on function public.intake_queue_send(jsonb) is 'Put a message on intake_queue.';
revoke all on function public.intake_queue_send(jsonb) from public;
grant execute on function public.intake_queue_send(jsonb) to penstock_intake_executor;
