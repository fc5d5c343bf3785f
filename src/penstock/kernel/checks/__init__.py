"""What `penstock doctor` looks at: small functions, each with a finding and a remedy."""

from penstock.kernel.checks.connection import CONNECTION_CHECKS
from penstock.kernel.checks.examination import (
    Check,
    Diagnosis,
    Examination,
    Finding,
    Skipped,
    examine,
)
from penstock.kernel.checks.server import SERVER_CHECKS
from penstock.kernel.checks.workload import WORKLOAD_CHECKS

CHECKS: tuple[Check, ...] = (*SERVER_CHECKS, *CONNECTION_CHECKS, *WORKLOAD_CHECKS)

__all__ = ["CHECKS", "Check", "Diagnosis", "Examination", "Finding", "Skipped", "examine"]
