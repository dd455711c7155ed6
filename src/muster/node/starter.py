"""Starts the node program on a machine where it may be missing.

Whoever has a connection to the machine, such as by ssh, has its Python run the text of this module
(`python -c`), which has to be understood by versions that are too old, too:

    KEY WORDS...

The program is a zip file. It is unpacked in the user's cache, once for each key, and run with these
words. Standard input and output are those of the program, but for what comes first:

    muster-node         the program starts
    muster-node upload  the program is missing, and has to be written first: a line with the number
                        of its bytes and their SHA-256, and the bytes
"""

import os
import sys


def main(key: str, words: "list[str]") -> None:
    """Run the program, and exit with its exit code."""
    if sys.version_info < (3, 9):
        version = "%d.%d" % (sys.version_info[0], sys.version_info[1])
        text = "Python 3.9 or newer is needed, and %s is %s\n" % (sys.executable, version)
        sys.stderr.write(text)
        sys.exit(1)
    try:
        folder = program(key)
    except (OSError, ValueError) as error:
        sys.exit("the node program cannot be stored: %s" % error)
    sys.path.insert(0, folder)
    from muster.node.__main__ import main as run

    code = run(words)
    sys.stderr.flush()
    os._exit(code)  # Python would take its time to free what it has


def program(key: str) -> str:
    """The folder of the program. Raises OSError, ValueError."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = os.path.join(cache, "muster", "node-" + key)
    if os.path.isdir(folder):
        os.write(1, b"muster-node\n")
        return folder
    os.write(1, b"muster-node upload\n")
    import compileall
    import hashlib
    import io
    import shutil
    import tempfile
    import zipfile

    line = b""
    while not line.endswith(b"\n"):
        line += _read(1)
    size, digest = line.decode().split()
    data = b""
    while len(data) < int(size):
        data += _read(int(size) - len(data))
    if hashlib.sha256(data).hexdigest() != digest:
        raise ValueError("it has another digest")
    parent = os.path.dirname(folder)
    os.makedirs(parent, 0o700, exist_ok=True)
    for name in os.listdir(parent):  # of processes that were killed
        path = os.path.join(parent, name)
        if name.startswith("part-") and _is_old(path):
            shutil.rmtree(path, ignore_errors=True)
    unpacked = tempfile.mkdtemp(prefix="part-", dir=parent)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            archive.extractall(unpacked)
        compileall.compile_dir(unpacked, quiet=2)  # programs start sooner
        os.rename(unpacked, folder)
    except OSError:
        shutil.rmtree(unpacked, ignore_errors=True)
        if not os.path.isdir(folder):  # by another process, meanwhile
            raise
    return folder


def _read(size: int) -> bytes:
    """Up to `size` bytes of standard input. Exits at its end."""
    data = os.read(0, size)
    if not data:
        sys.exit("the connection was closed")
    return data


def _is_old(path: str) -> bool:
    """Whether it has not changed for a day."""
    import time

    try:
        return os.stat(path).st_mtime < time.time() - 86400
    except OSError:  # removed meanwhile
        return False


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
