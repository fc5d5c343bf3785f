-- The amount is a decimal string in major units ("10.50") or an integer in minor units (1050). A
-- JSON number with a point or too many digits is refused: it may have been a float on its way here.
create or replace function penstock_payments.problem(p_rail_type text, p_payload jsonb)
returns text
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
    v_amount jsonb := p_payload -> 'amount';
    v_text text := p_payload ->> 'amount';
    v_to jsonb := p_payload -> 'destination';
    v_units integer;
    v_keys text[];
begin
    if jsonb_typeof(p_payload) is distinct from 'object' then
        return 'the payload is not an object';
    end if;
    -- The digits of an exponent are written out in jsonb: look at the length before anything else.
    if octet_length(p_payload::text) > 65536 then
        return 'the payload is larger than 64 KiB';
    end if;
    select c.minor_units into v_units
    from penstock_payments.currencies c where c.code = p_payload ->> 'currency';
    if not found then
        return 'the currency is not an active ISO 4217 code in capitals';
    end if;
    if jsonb_typeof(v_amount) = 'string' then
        if v_text !~ '^[0-9]{1,15}(\.[0-9]{1,4})?$' then
            return 'the amount is not a plain decimal of at most 15 digits';
        elsif length(split_part(v_text, '.', 2)) > v_units then
            return format('the amount has more than %s decimals', v_units);
        end if;
    elsif jsonb_typeof(v_amount) is distinct from 'number' or v_text !~ '^-?[0-9]{1,18}$' then
        return 'the amount is neither a decimal string nor an integer of minor units';
    end if;
    if v_text::numeric <= 0 then
        return 'the amount is not above zero';
    end if;
    select r.destination_keys into v_keys
    from public.payment_rails r where r.rail_type = p_rail_type;
    if not found and (select p.known_rails_only from penstock_payments.policy p) then
        return format('there is no rail %L', p_rail_type);
    end if;
    if cardinality(v_keys) > 0 then
        if exists (select from unnest(v_keys) as k (key)
                   where jsonb_typeof(v_to -> k.key) is distinct from 'string'
                      or v_to ->> k.key !~ '[^\s\u00a0]') then
            return format('the destination needs %s', array_to_string(v_keys, ', '));
        end if;
    elsif not coalesce(case jsonb_typeof(v_to)
            when 'string' then v_to #>> '{}' ~ '[^\s\u00a0]'
            when 'object' then exists (select from jsonb_each_text(v_to) as e
                                       where e.value ~ '[^\s\u00a0]') end, false) then
        return 'the destination is empty';
    end if;
    return null;
end
$$;

comment on function penstock_payments.problem(text, jsonb) is
    'What keeps a payload from being dispatched over a rail; null if nothing does.';
revoke all on function penstock_payments.problem(text, jsonb) from public;
