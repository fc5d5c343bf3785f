-- Headers travel on to receivers and carry the bridge's own notes, so a buyer may set none but
-- these.
create or replace function penstock_intake.trace_headers(p_headers jsonb[]) returns jsonb[]
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
    select array_agg((
        select jsonb_object_agg(e.key, e.value) from jsonb_each(h.headers) e
        where e.key in ('traceparent', 'tracestate', 'baggage')
          and jsonb_typeof(e.value) = 'string') order by h.n)
    from unnest(p_headers) with ordinality as h (headers, n)
$$;

comment on function penstock_intake.trace_headers(jsonb[]) is
    'The trace context of each; null where there is none.';
revoke all on function penstock_intake.trace_headers(jsonb[]) from public;
