"""The former name of `muster.node.cluster_lifetime`, by which stored jobs and plans start it."""

from __future__ import annotations

import sys

from muster.node.cluster_lifetime import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
