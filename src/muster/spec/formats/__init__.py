"""Other systems' job descriptions, read into and written from a `JobSpec`.

Nothing here is imported before a file turns out to be one of theirs.
"""
