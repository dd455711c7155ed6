"""Sentences about runs, plans, policies and failures, as the command line and the API show them.

Pure functions: records in, text out. The texts that the lifecycle stores with a run are made in
`lifecycle.failure_details`.
"""
