-- One breaker for all workers. It opens after breaker_after failures in a row, when half of at least
-- twenty calls within ten seconds failed, or at once when the receiver does not know us (401). Each time
-- it opens again without having closed, it stays open twice as long. Rows are locked by name, and the
-- new state follows from the row as it is then: reports of several workers add up in any order.
create or replace function app.outbox_weigh(
    p_destinations text[], p_ok integer[], p_failed integer[], p_codes text[]
) returns table (name text, breaker text, moved boolean)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    v_now timestamptz := penstock.clock();
begin
    return query
        with known as materialized (
            select d.name, d.breaker, d.breaker_after, d.breaker_failures, d.breaker_opens,
                   d.breaker_pause_s, d.breaker_window_at > v_now - interval '10 seconds' as fresh,
                   d.breaker_window_ok, d.breaker_window_bad
            from public.outbox_destinations d
            where d.name = any (p_destinations) and d.kind <> 'python'
            order by d.name
            for no key update of d
        ), summed as (
            select k.*, t.failed, t.ok, t.code,
                   case when t.ok > 0 then 0 else k.breaker_failures + t.failed end as in_a_row,
                   case when k.fresh then k.breaker_window_ok else 0 end + t.ok as window_ok,
                   case when k.fresh then k.breaker_window_bad else 0 end + t.failed as window_bad
            from known k
            join unnest(p_destinations, p_ok, p_failed, p_codes) as t (name, ok, failed, code)
              on t.name = k.name
        ), judged as (
            select s.*, case
                when s.breaker = 'half_open' and s.failed > 0 then 'open'
                when s.breaker = 'half_open' and s.ok > 0 then 'closed'
                when s.breaker = 'closed' and s.failed > 0
                     and (s.in_a_row >= s.breaker_after or s.code = 'HTTP_401'
                          or (s.window_ok + s.window_bad >= 20 and s.window_bad >= s.window_ok))
                    then 'open'
                else s.breaker end as becomes
            from summed s
        ), written as (
            update public.outbox_destinations d
            set breaker = j.becomes,
                breaker_failures = j.in_a_row,
                breaker_opens = case when j.becomes = 'closed' then 0
                    when j.becomes <> j.breaker then j.breaker_opens + 1 else j.breaker_opens end,
                breaker_opened_at = case when j.becomes = 'closed' then null
                    when j.breaker = 'closed' then v_now else d.breaker_opened_at end,
                breaker_until = case when j.becomes = 'closed' then null
                    when j.becomes = j.breaker then d.breaker_until
                    else v_now + make_interval(secs => least(300,
                        j.breaker_pause_s * 2 ^ least(j.breaker_opens, 10))::float8) end,
                breaker_window_at = case when j.fresh then d.breaker_window_at else v_now end,
                breaker_window_ok = case when j.becomes = j.breaker then j.window_ok else 0 end,
                breaker_window_bad = case when j.becomes = j.breaker then j.window_bad else 0 end,
                last_error = case when j.failed > 0 then left(j.code, 60) else d.last_error end,
                last_error_at = case when j.failed > 0 then v_now else d.last_error_at end
            from judged j
            where d.name = j.name
            returning d.name, j.breaker as before, d.breaker
        )
        select w.name, w.breaker, w.breaker <> w.before from written w;
end
$$;

comment on function app.outbox_weigh(text[], integer[], integer[], text[]) is
    'Tell how calls to destinations went; returns their breakers, and which of them that moved.';
revoke all on function app.outbox_weigh(text[], integer[], integer[], text[]) from public;
grant execute on function app.outbox_weigh(text[], integer[], integer[], text[])
    to penstock_outbox_executor;
