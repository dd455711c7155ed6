"""Job descriptions of other systems, read as a `JobSpec` and written from one.

Nothing here is imported until a file turns out to be in such a format.
"""
