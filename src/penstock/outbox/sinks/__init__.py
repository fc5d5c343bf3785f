"""Sinks: the places outside to which events are delivered, one module for each kind."""
