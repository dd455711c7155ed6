"""Fields of ADS's YAML that are known and not read, by object. docs/ads.md shows them."""

from __future__ import annotations

from muster.spec.formats import ads_model as ads
from muster.spec.formats.tables import Tables

_OCI = "is not used: it is a place in Oracle's cloud"
#: A demand would be refused on most laptops: OCI gives every job 50 GB or more, needed or not.
_DISK = "is not used: nodes have the disk of MUSTER_HOME; `resources.disk` says what each may use"
_CONDA = "is not used: programs run with the Python that started Muster; see `conda`"
_TAGS = "is not used: tags here are free"
_SECRET = (
    "Muster does not read Oracle's vault",
    "leave it out for git's own credential helpers; or `muster convert FILE --to muster`, and say "
    "token_env: NAME for git",
)

TABLES = Tables(
    silent={
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
