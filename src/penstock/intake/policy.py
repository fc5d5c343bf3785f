"""Pools in a policy file: `[pool.NAME]`."""

from penstock.kernel.policy import PolicyKind

POOL = PolicyKind(
    kind="pool",
    doc="When a pool sells, to whom how much, and how its reservations are confirmed.",
    fields={
        "is_active": "flag",
        "opens_at": "text",
        "closes_at": "text",
        "max_per_user": "integer",
        "hold_s": "integer",
        "batch_size": "integer",
        "visibility_timeout_sec": "integer",
        "max_retries": "integer",
        "validation_webhook_url": "text",
        "commit_rpc_name": "text",
        "commit_webhook_url": "text",
    },
    read="""
        select c.pool_id as name,
               (to_jsonb(c) - 'pool_id' || jsonb_build_object(
                   'opens_at', p.opens_at, 'closes_at', p.closes_at,
                   'max_per_user', p.max_per_user, 'hold_s', p.hold_s))::text as row_values
        from public.engine_config c left join public.intake_pools p on p.pool_id = c.pool_id
        order by c.pool_id
    """,
    write="select public.intake_pool_set($1, $2::jsonb, $3, $4) as audit_id",
)
KINDS: tuple[PolicyKind, ...] = (POOL,)
