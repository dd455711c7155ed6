"""A class of Spark's, run in the foreground: `python -m muster.node.spark CLASS words`.

What `spark-class` of the installed pyspark (or of $SPARK_HOME) does, but that it says what is
missing.
"""

from __future__ import annotations

import os
import shutil
import sys
from importlib.util import find_spec
from typing import List

#: What a shell answers for a command that is not there.
_NOT_FOUND = 127


def spark_home() -> str | None:
    """The folder that Spark is in."""
    if os.environ.get("SPARK_HOME"):
        return os.environ["SPARK_HOME"]
    found = find_spec("pyspark")
    return os.path.dirname(found.origin) if found is not None and found.origin else None


def java() -> str | None:
    """The program that Spark's own scripts would take."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which(os.path.join(home, "bin", "java") if home else "java")


def main(words: List[str]) -> int:
    """Become that class. Returns an exit code where that is not possible."""
    if java() is None:
        where = "JAVA_HOME, %s" % os.environ["JAVA_HOME"] if "JAVA_HOME" in os.environ else "PATH"
        return _refuse("no Java in %s: install a Java 17 runtime, or set JAVA_HOME" % where)
    home = spark_home()
    if home is None:
        return _refuse("no Spark for %s: pip install pyspark, or set SPARK_HOME" % sys.executable)
    program = os.path.join(home, "bin", "spark-class")
    if not os.access(program, os.X_OK):
        return _refuse("no Spark in %s: there is no %s" % (home, program))
    os.execve(program, [program, *words], {**os.environ, "SPARK_HOME": home})


def _refuse(why: str) -> int:
    sys.stderr.write("muster: %s\n" % why)
    return _NOT_FOUND


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
