-- Products are installed one by one, so the views over all of them are rebuilt from what is there.
create or replace function penstock.install_views() returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    v_dead text;
    v_stats text;
    v_role name;
begin
    select string_agg(format('select * from %s', dead_view), ' union all ' order by queue),
           string_agg(format('select * from %s', stats_view), ' union all ' order by queue)
    into v_dead, v_stats
    from penstock.queue;
    execute 'create or replace view penstock.dead_letters as ' || coalesce(v_dead,
        'select null::text as queue, null::uuid as id, null::text as topic, null::text as state, '
        'null::text as error_code, null::text as fingerprint, null::text as error, '
        'null::integer as attempts, null::timestamptz as created_at, null::timestamptz as dead_at '
        'where false');
    execute 'create or replace view penstock.queue_stats as ' || coalesce(v_stats,
        'select null::text as queue, null::bigint as ready, null::bigint as scheduled, '
        'null::bigint as leased, null::bigint as expired, null::bigint as dead, '
        'null::bigint as held, null::double precision as oldest_age_s where false');
    comment on view penstock.dead_letters is 'Dead and held items of all queues.';
    comment on view penstock.queue_stats is 'Depth, age and trouble of all queues, from hot tables.';
    -- Roles may be absent where the operator chose to manage them elsewhere.
    for v_role in
        select rolname from pg_roles
        where rolname in ('penstock_operator', 'penstock_readonly', 'penstock_auditor',
                          'penstock_control')
    loop
        execute format('grant select on penstock.dead_letters, penstock.queue_stats to %I', v_role);
    end loop;
end
$$;

comment on function penstock.install_views() is
    'Rebuild the views over all registered queues; migrate calls it last.';
revoke all on function penstock.install_views() from public;
