"""The engine `slurm`: nodes in allocations of Slurm."""
