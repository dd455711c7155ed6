"""A distributed sum on Dask, written like a program for ADS's distributed training."""

from __future__ import annotations

import sys

import dask.array as da
from distributed import Client

if __name__ == "__main__":
    size = int(sys.argv[1])
    with Client() as client:
        workers = client.scheduler_info(n_workers=-1)["workers"]
        total = da.arange(size, chunks=size // 8).sum().compute()
    print(f"{len(workers)} workers added up to {total}")
