"""Embedded Postgres: finds server programs and runs clusters. Knows only the kernel's errors."""

from penstock.postgres.binaries import Binaries, find_binaries
from penstock.postgres.cluster import Cluster
from penstock.postgres.named import clusters_dir, named_cluster
from penstock.postgres.supervision import Supervisor, supervise
from penstock.postgres.throwaway import throwaway_cluster

__all__ = [
    "Binaries",
    "Cluster",
    "Supervisor",
    "clusters_dir",
    "find_binaries",
    "named_cluster",
    "supervise",
    "throwaway_cluster",
]
