create table gadget.part (
    id     bigint generated always as identity primary key,
    name   text not null default gadget.label(),
    colour gadget.colour not null default 'red'
);
comment on table gadget.part is 'Parts.';
