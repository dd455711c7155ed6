"""OpenID Connect: people log in at an issuer that their organization has already.

The command line uses the device flow, the console the code flow. Both end with an ID token, which
the server verifies, and for which it creates a token of its own.
"""
