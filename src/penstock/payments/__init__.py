"""Payments: money instructions over rails, in sequence per participant, every attempt on record."""
