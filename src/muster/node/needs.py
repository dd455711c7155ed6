"""The former name of `muster.node.requirements`, by which stored plans start it."""

from __future__ import annotations

import sys

from muster.node.requirements import main

if __name__ == "__main__":
    main(sys.argv[1:])
