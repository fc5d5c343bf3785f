create type gadget.colour as enum ('red', 'green');
comment on type gadget.colour is 'What a part may look like.';
