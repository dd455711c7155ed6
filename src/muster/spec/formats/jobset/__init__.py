"""JobSet manifests (`jobset.x-k8s.io/v1alpha2`), read as a `JobSpec` and written from one."""
