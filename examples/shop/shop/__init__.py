"""A shop that tells what has happened: an example application."""
