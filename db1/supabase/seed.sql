-- The demo pool: its config row (100 messages a batch, 45 s visibility, 10 retries, active) and 1000
-- free slots. Running it again adds nothing: a pool that has sold is not offered anew.
select public.intake_seed_demo('demo_concert_2026', 1000);
