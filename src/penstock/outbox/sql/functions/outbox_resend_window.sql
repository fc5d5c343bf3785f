-- Twice as long after a window with little in it, half as long while one holds too much: a few looks,
-- whatever the archive's size. A millisecond is not divided further.
create or replace function app.outbox_resend_window(
    p_from timestamptz, p_until timestamptz, p_window interval, p_limit integer
) returns interval
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
    v_window interval := p_window;
    v_count integer;
begin
    for v_look in 1 .. 50 loop
        select count(*) into v_count
        from (select from public.outbox_archive a
              where a.delivered_at >= p_from
                and a.delivered_at < least(p_from + v_window, p_until)
              limit 10 * p_limit + 1) x;
        if v_count > 10 * p_limit and v_window > interval '1 millisecond' then
            v_window := v_window / 2;
        elsif v_count < p_limit and v_look < 25
              and p_from + v_window < p_until then
            v_window := v_window * 2;
        else
            exit;
        end if;
    end loop;
    return v_window;
end
$$;

comment on function app.outbox_resend_window(
    timestamptz, timestamptz, interval, integer) is
    'How far a resend can look ahead in one step.';
revoke all on function app.outbox_resend_window(
    timestamptz, timestamptz, interval, integer) from public;
