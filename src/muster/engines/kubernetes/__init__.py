"""The engine for Kubernetes clusters, with JobSet and Kueue where they are installed."""
