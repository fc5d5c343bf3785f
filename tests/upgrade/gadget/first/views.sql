create or replace view gadget.names as select name from gadget.part;
comment on view gadget.names is 'Names of all parts.';
