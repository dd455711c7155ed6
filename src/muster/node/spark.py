"""Runs a class of Spark in the foreground: `python -m muster.node.spark CLASS ARGUMENT...`.

Like `spark-class` of the installed pyspark (or of $SPARK_HOME), with a message about what is
missing.
"""

from __future__ import annotations

import os
import shutil
import sys
from importlib.util import find_spec
from typing import List, NoReturn

from muster.node.requirements import missing_message, require


def spark_home() -> str | None:
    """Spark's folder; None if it is not installed."""
    if os.environ.get("SPARK_HOME"):
        return os.environ["SPARK_HOME"]
    found = find_spec("pyspark")
    return os.path.dirname(found.origin) if found is not None and found.origin else None


def java() -> str | None:
    """The Java program that Spark's scripts would start; None if there is none."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which(os.path.join(home, "bin", "java") if home else "java")


def find_problem() -> str:
    """What is missing, as a message; "" if nothing is."""
    if java() is None:
        where = "JAVA_HOME, %s" % os.environ["JAVA_HOME"] if "JAVA_HOME" in os.environ else "PATH"
        return "no Java in %s: install a Java 17 runtime, or set JAVA_HOME" % where
    home = spark_home()
    if home is None:
        return missing_message("spark")
    program = _program(home)
    return "" if os.access(program, os.X_OK) else "no Spark in %s: %s not found" % (home, program)


def _program(home: str) -> str:
    return os.path.join(home, "bin", "spark-class")


def main(argv: List[str]) -> NoReturn:
    """Become that class, or exit with a message about what is missing."""
    require("spark")
    home = spark_home()
    assert home is not None
    program = _program(home)
    os.execve(program, [program, *argv], {**os.environ, "SPARK_HOME": home})


if __name__ == "__main__":
    main(sys.argv[1:])
