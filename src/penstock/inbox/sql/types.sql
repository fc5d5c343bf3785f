create type public.webhook_event_status as enum
    ('pending', 'processing', 'success', 'failed', 'dead_letter');
comment on type public.webhook_event_status is
    'failed: the last attempt failed and another one is scheduled.';
