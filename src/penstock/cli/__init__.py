"""The command line: thin, no SQL of its own beyond calls and selects from views, no state."""
