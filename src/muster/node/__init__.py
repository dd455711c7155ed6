"""Code that runs on a node.

Uses only the standard library of Python 3.9 or newer, and no other package of Muster.
"""
