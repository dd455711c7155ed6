"""`python tests/simulate.py`: replay one simulated run, try many, or report what they covered."""

from simulation.harness.command import main

if __name__ == "__main__":
    main()
