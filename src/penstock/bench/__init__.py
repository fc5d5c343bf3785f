"""Measurements: figures with their baseline in the same run, goals met or missed."""
