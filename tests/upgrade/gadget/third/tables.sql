create table gadget.part (
    id     bigint generated always as identity primary key,
    name   text not null default gadget.label(),
    colour gadget.colour not null default 'red',
    weight integer not null default 0 check (weight >= 0)
);
comment on table gadget.part is 'Parts.';
create index part_name on gadget.part (name);
