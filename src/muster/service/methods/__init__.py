"""The methods of `EmbeddedAPI`, a class for each part of `MusterAPI`, which documents them.

Each method is short: it calls the use case in a module of `muster.service`, which is imported then.
"""
