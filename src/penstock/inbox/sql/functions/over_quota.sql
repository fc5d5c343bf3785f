-- Ready rows lie between the watermark and the last position handed out, so while that distance is
-- small nothing needs to be counted.
create or replace function webhook.over_quota(p_webhook_ids uuid[]) returns uuid[]
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    v_ready bigint := pg_sequence_last_value('penstock.inbox_next')
                      - pg_sequence_last_value('penstock.inbox_wm');
begin
    return array(
        select w.id from public.webhook_endpoints w
        where w.id = any (p_webhook_ids) and w.max_backlog <= v_ready
          and (select count(*) from (
                   select from public.webhook_events e
                   where e.webhook_id = w.id and e.status = 'pending'
                   limit w.max_backlog) b) >= w.max_backlog);
end
$$;

comment on function webhook.over_quota(uuid[]) is
    'Which of these sources have as many events waiting as they may.';
revoke all on function webhook.over_quota(uuid[]) from public;
