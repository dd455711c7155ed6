"""What runs on a node. Standard library only, Python 3.9 or newer, nothing else of Muster."""
