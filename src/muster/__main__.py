"""The `muster` command, which is `python -m muster`."""

from muster.interrupt import leave_at_once


def main() -> None:
    """Run the command. Ctrl-C is handled before anything else is imported."""
    leave_at_once()
    from muster.cli.main import main

    main()


if __name__ == "__main__":
    main()
