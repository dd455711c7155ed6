"""The `muster` command, which is `python -m muster`."""

import gc

from muster.interrupt import leave_at_once


def main() -> None:
    """Run the command. Ctrl-C is handled before anything else is imported."""
    leave_at_once()
    gc.disable()  # collecting fresh imports takes a tenth of the time to the first node
    from muster.cli.main import main

    main()


if __name__ == "__main__":
    main()
