"""Intake: sells scarce things in a burst and has every sale confirmed by a second database."""
