create schema if not exists webhook;
comment on schema webhook is
    'Functions of the inbox: receive, claim, finish and what operators need.';

select penstock.create_position('inbox');
