"""The program that removes a throwaway cluster when the process that made it is gone."""

import sys
from pathlib import Path

from penstock.postgres.cluster import Cluster
from penstock.postgres.throwaway import discard


def main() -> None:
    """Wait for the end of standard input, then remove the cluster in the given directory."""
    directory = Path(sys.argv[1])
    sys.stdin.buffer.read()
    if directory.exists():
        discard(Cluster("guarded", directory / "data"), directory)


if __name__ == "__main__":
    main()
