"""The interface between Muster and those who use it: the command line and the Python API.

`interface.MusterAPI` is the contract; the other modules are what its methods take and return, which
can all be sent over a network. `service.embedded.EmbeddedAPI` implements it in the same process.
"""
