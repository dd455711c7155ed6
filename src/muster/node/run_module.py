"""Runs a module of this package as `python -m` does, in a Python that has no Muster:

    python PATH/run_module.py MODULE ARGUMENT...

PATH: of this file. Only this process finds the modules: no variable makes other programs see them.
"""

from __future__ import annotations

import os
import runpy
import sys
from typing import List


def words_for(python: str, package: str, module: str) -> List[str]:
    """The words that run a module. package: the folder of `muster.node`."""
    return [python, os.path.join(package, "run_module.py"), module]


def main(argv: List[str]) -> None:
    """Become `python -m MODULE ARGUMENT...`. argv: the words after the path of this file."""
    here = os.path.dirname(os.path.abspath(__file__))
    if sys.path[0] == here:  # not if Python leaves it out (-P)
        sys.path[0] = os.getcwd()  # where `python -m` looks first
    sys.path.insert(0, os.path.dirname(os.path.dirname(here)))
    sys.argv = argv  # the module's name comes first, as usual
    runpy.run_module(argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1:])
