"""The use cases of Muster: one place that checks, plans, records and starts.

`Service` lists them; each is a function in the module that is named after it. The command line and
the Python API call the same ones.
"""

from muster.service.service import Service

__all__ = ["Service"]
