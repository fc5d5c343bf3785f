"""Webhooks in: verified, stored, answered in milliseconds, each event processed once."""
