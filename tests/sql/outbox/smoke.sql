-- The smoke tests of the outbox, for psql:  psql -v ON_ERROR_STOP=1 -f smoke.sql
-- One transaction, undone at the end; a failed assertion stops it.
begin;

-- 1. Claims come oldest first.
insert into outbox (topic, payload, created_at)
values ('test', '{"seq": 3}'::jsonb, now() - interval '1 hour'),
       ('test', '{"seq": 1}'::jsonb, now() - interval '3 hours'),
       ('test', '{"seq": 2}'::jsonb, now() - interval '2 hours');
do $$
begin
    assert (select array_agg(payload ->> 'seq')
            from app.outbox_claim(10, gen_random_uuid(), null)) = array['1', '2', '3'],
        'claims come oldest first';
end
$$;

-- 2. Two claims share no id.
insert into outbox (topic, payload) select 'test', '{}' from generate_series(1, 8);
create temp table claimed (id uuid, token uuid);
insert into claimed select id, processing_token
from app.outbox_claim(5, '11111111-1111-1111-1111-111111111111', null);
insert into claimed select id, processing_token
from app.outbox_claim(5, '22222222-2222-2222-2222-222222222222', null);
do $$
begin
    assert (select count(*) = 8 and count(distinct id) = 8 from claimed), 'claims are disjoint';
end
$$;

-- 3. Only the right token finishes.
do $$
declare
    v_ids uuid[] := array(select id from claimed
                          where token = '11111111-1111-1111-1111-111111111111');
begin
    assert app.outbox_mark_delivered('bbbbbbbb-bbbb-bbbb-bbbb-bbbbbbbbbbbb', v_ids) = 0,
        'a wrong token finishes nothing';
    assert app.outbox_mark_delivered('11111111-1111-1111-1111-111111111111', v_ids) = 5,
        'the right token finishes all';
    assert app.outbox_mark_delivered('22222222-2222-2222-2222-222222222222', v_ids) = 0,
        'what another delivered is not counted';
end
$$;

-- 4. An identity is unique within its tenant.
insert into contact_identities (tenant_id, contact_id, type, value)
values ('aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa', gen_random_uuid(), 'external_id', 'acct_123'),
       ('aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa', gen_random_uuid(), 'email', 'Alice@Example.com');
do $$
declare
    v_again record;
begin
    for v_again in
        select * from (values ('external_id', 'acct_123'), ('email', 'alice@example.com')) as v (t, x)
    loop
        begin
            insert into contact_identities (tenant_id, contact_id, type, value)
            values ('aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa', gen_random_uuid(), v_again.t, v_again.x);
            raise assert_failure using message = v_again.t || ' was accepted twice';
        exception when unique_violation then
            null;
        end;
    end loop;
end
$$;

rollback;
