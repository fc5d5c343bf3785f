create schema if not exists gadget;
comment on schema gadget is 'A product that exists only in tests.';
