"""`python -m muster`: the same as the `muster` command."""

from muster.cli.main import main

main()
