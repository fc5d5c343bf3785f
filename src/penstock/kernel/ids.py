"""Identifiers: time-ordered UUIDs made here, so that an id exists before the row does."""

import os
import time
from uuid import UUID


def uuid7() -> UUID:
    """Return a version 7 UUID: 48 bits of Unix milliseconds, then 74 random bits (RFC 9562)."""
    milliseconds = time.time_ns() // 1_000_000
    value = (milliseconds & 0xFFFF_FFFF_FFFF) << 80 | int.from_bytes(os.urandom(10), "big")
    value = value & ~(0xF << 76) | 0x7 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    return UUID(int=value)
