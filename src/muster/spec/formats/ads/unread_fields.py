"""The fields of ADS's YAML that Muster knows but does not read: docs/reference/ads.md."""

from __future__ import annotations

from muster.spec.formats.ads import model as ads
from muster.spec.formats.fields import FieldTables

_OCI = "is not used: it refers to Oracle's cloud"
#: OCI gives every job 50 GB or more. As a requirement, it would exclude most laptops.
_DISK = "is not used: nodes have the disk of MUSTER_HOME; `resources.disk` limits what each may use"
_CONDA = "is not used: programs run with the Python that started Muster; see `conda`"
_TAGS = "is not used: tags have no namespaces here"
_SECRET = (
    "Muster does not read Oracle's vault",
    "leave it out to use git's credential helpers; or `muster convert FILE --to muster`, and set "
    "token_env: NAME for git",
)

TABLES = FieldTables(
    ignored={
        ads.Distributed: ("kind", "apiVersion"),
        ads.Job: ("kind", "apiVersion"),
        ads.DistributedSpec: (),
        ads.Infrastructure: ("kind", "apiVersion"),
        ads.Cluster: ("apiVersion",),
        ads.RoleSpec: ("name",),
        ads.DistributedRuntime: ("kind", "apiVersion"),
        ads.DistributedRuntimeSpec: ("type",),
        ads.Runtime: ("kind", "apiVersion"),
        ads.JobSpec: ("id",),
        ads.RuntimeSpec: ("skipMetadataUpdate", "notebookEncoding", "outputURI"),
        ads.Certificate: ("caCert", "cert", "spec", "kind"),
    },
    noted={
        ads.InfrastructureSpec: {
            **dict.fromkeys(
                (
                    *("projectId", "compartmentId", "logGroupId", "logId", "subnetId", "id"),
                    *("jobInfrastructureType", "jobType"),
                ),
                _OCI,
            ),
            **dict.fromkeys(("blockStorageSize", "blockStorageSizeGB"), _DISK),
            "freeformTags": _TAGS,
            "definedTags": _TAGS,
        },
        ads.ShapeConfig: {
            "cpuBaseline": "is not used: nodes may always use all the CPUs of their shape",
        },
        ads.RuntimeSpec: {
            "conda": _CONDA,
            "definedTags": _TAGS,
            "imageDigest": "is not used: the image is not pulled here",
            "imageSignatureId": "is not used: the image is not pulled here",
            "deepspeed": "is not used: DeepSpeed starts like any PyTorch program here",
        },
    },
    refused={
        ads.DistributedRuntimeSpec: {"gitSecretId": _SECRET},
        ads.RuntimeSpec: {"gitSecretId": _SECRET},
        ads.GitSource: {"gitSecretId": _SECRET},
    },
)
