"""Events published in the user's own transaction and delivered to handlers."""
