"""What all products share: leases, verdicts, the pump, wake-ups, the schema. Knows no product."""
