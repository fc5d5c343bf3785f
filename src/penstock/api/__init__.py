"""The HTTP surface: thin, no SQL, no state."""
