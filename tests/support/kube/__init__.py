"""A Kubernetes cluster for tests, where no cluster can run.

An API server with the controllers of Jobs, JobSets and Kueue as models, and kubelets that run pods
as processes of this machine. `tests/engines/kubernetes/double` shows that it behaves as a real one.
"""

from support.kube.cluster import Cluster

__all__ = ["Cluster"]
