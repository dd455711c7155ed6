"""The engine `oci`: nodes in job runs of OCI Data Science."""
