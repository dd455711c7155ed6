"""The use cases of Muster: one place that checks, plans, records and starts.

`embedded.EmbeddedAPI` has a method for each (`methods`); each is a function in the module that is
named after it. The command line and the Python API reach them through
`muster.api.interface.MusterAPI`.
"""
