create type public.slot_status as enum ('AVAILABLE', 'RESERVED', 'CONSUMED');
comment on type public.slot_status is 'Life of a slot: on offer, held by a buyer, sold.';
