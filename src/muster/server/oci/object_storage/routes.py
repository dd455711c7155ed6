"""The operations of object storage (OCI: Object Storage Service API)."""

from __future__ import annotations

from muster.permissions import Permission
from muster.server.oci.object_storage import buckets, copies, links, objects, uploads
from muster.server.oci.routes import OciRoute

_BUCKETS, _BUCKET = "/n/{namespace}/b", "/n/{namespace}/b/{bucket}"
_OBJECTS, _OBJECT = f"{_BUCKET}/o", f"{_BUCKET}/o/{{object...}}"
_UPLOADS, _UPLOAD = f"{_BUCKET}/u", f"{_BUCKET}/u/{{object...}}"
_LINKS, _LINK = f"{_BUCKET}/p", f"{_BUCKET}/p/{{link}}"
_WORK, _ONE_WORK = "/workRequests", "/workRequests/{work_request}"
_BY_LINK = "/p/{secret}/n/{namespace}/b/{bucket}/o"

ROUTES = (
    OciRoute("get_namespace", "GET", "/n", buckets.get_namespace),
    OciRoute("get_namespace_metadata", "GET", "/n/{namespace}", buckets.get_namespace_metadata),
    OciRoute("create_bucket", "POST", _BUCKETS, buckets.create_bucket, Permission.BUCKET_CREATE),
    OciRoute("list_buckets", "GET", _BUCKETS, buckets.list_buckets, Permission.BUCKET_INSPECT),
    OciRoute("get_bucket", "GET", _BUCKET, buckets.get_bucket, Permission.BUCKET_READ),
    OciRoute("head_bucket", "HEAD", _BUCKET, buckets.head_bucket, Permission.BUCKET_INSPECT),
    OciRoute("update_bucket", "POST", _BUCKET, buckets.update_bucket, Permission.BUCKET_UPDATE),
    OciRoute("delete_bucket", "DELETE", _BUCKET, buckets.delete_bucket, Permission.BUCKET_DELETE),
    OciRoute(
        "list_replication_policies",
        *("GET", f"{_BUCKET}/replicationPolicies", buckets.list_nothing),
        permission=Permission.BUCKET_READ,
    ),
    OciRoute(
        *("list_replication_sources", "GET", f"{_BUCKET}/replicationSources", buckets.list_nothing),
        permission=Permission.BUCKET_READ,
    ),
    OciRoute(
        *("list_retention_rules", "GET", f"{_BUCKET}/retentionRules", buckets.list_retention_rules),
        permission=Permission.BUCKET_READ,
    ),
    OciRoute("list_objects", "GET", _OBJECTS, objects.list_objects, Permission.OBJECT_INSPECT),
    OciRoute(
        *("put_object", "PUT", _OBJECT),
        permission=Permission.OBJECT_CREATE,
        stream=objects.put_object,
    ),
    OciRoute(
        *("get_object", "GET", _OBJECT),
        permission=Permission.OBJECT_READ,
        stream=objects.get_object,
    ),
    OciRoute(
        *("head_object", "HEAD", _OBJECT),
        permission=Permission.OBJECT_READ,
        stream=objects.get_object,
    ),
    OciRoute("delete_object", "DELETE", _OBJECT, objects.delete_object, Permission.OBJECT_DELETE),
    OciRoute(
        "batch_delete_objects",
        *("POST", f"{_BUCKET}/actions/batchDeleteObjects", objects.delete_objects),
        permission=Permission.OBJECT_DELETE,
    ),
    OciRoute(
        *("rename_object", "POST", f"{_BUCKET}/actions/renameObject", copies.rename_object),
        permission=Permission.OBJECT_DELETE,
        also=(Permission.OBJECT_READ, Permission.OBJECT_CREATE),
    ),
    OciRoute(
        *("copy_object", "POST", f"{_BUCKET}/actions/copyObject", copies.copy_object),
        permission=Permission.OBJECT_READ,
        also=(Permission.OBJECT_CREATE,),
    ),
    OciRoute(
        *("create_multipart_upload", "POST", _UPLOADS, uploads.create_upload),
        permission=Permission.OBJECT_CREATE,
    ),
    OciRoute(
        *("list_multipart_uploads", "GET", _UPLOADS, uploads.list_uploads),
        permission=Permission.OBJECT_CREATE,
    ),
    OciRoute(
        *("upload_part", "PUT", _UPLOAD),
        permission=Permission.OBJECT_CREATE,
        stream=uploads.upload_part,
    ),
    OciRoute(
        *("list_multipart_upload_parts", "GET", _UPLOAD, uploads.list_parts),
        permission=Permission.OBJECT_CREATE,
    ),
    OciRoute(
        *("commit_multipart_upload", "POST", _UPLOAD, uploads.commit_upload),
        permission=Permission.OBJECT_CREATE,
    ),
    OciRoute(
        *("abort_multipart_upload", "DELETE", _UPLOAD, uploads.abort_upload),
        permission=Permission.OBJECT_DELETE,
    ),
    OciRoute(
        *("create_preauthenticated_request", "POST", _LINKS, links.create_link),
        permission=Permission.PAR_MANAGE,
    ),
    OciRoute(
        *("list_preauthenticated_requests", "GET", _LINKS, links.list_links),
        permission=Permission.PAR_MANAGE,
    ),
    OciRoute("get_preauthenticated_request", "GET", _LINK, links.get_link, Permission.PAR_MANAGE),
    OciRoute(
        *("delete_preauthenticated_request", "DELETE", _LINK, links.delete_link),
        permission=Permission.PAR_MANAGE,
    ),
    OciRoute("", "GET", f"{_BY_LINK}/{{object...}}", stream=links.get_by_link, public=True),
    OciRoute("", "HEAD", f"{_BY_LINK}/{{object...}}", stream=links.get_by_link, public=True),
    OciRoute("", "PUT", f"{_BY_LINK}/{{object...}}", stream=links.put_by_link, public=True),
    OciRoute("", "GET", _BY_LINK, stream=links.list_by_link, public=True),
    OciRoute("get_work_request", "GET", _ONE_WORK, copies.get_work_request, Permission.OBJECT_READ),
    OciRoute(
        *("cancel_work_request", "DELETE", _ONE_WORK, copies.cancel_work_request),
        permission=Permission.OBJECT_READ,
    ),
    OciRoute(
        *("list_work_requests", "GET", _WORK, copies.list_work_requests),
        permission=Permission.OBJECT_INSPECT,
    ),
    OciRoute(
        *("list_work_request_errors", "GET", f"{_ONE_WORK}/errors", copies.list_work_request_notes),
        permission=Permission.OBJECT_READ,
    ),
    OciRoute(
        *("list_work_request_logs", "GET", f"{_ONE_WORK}/logs", copies.list_work_request_notes),
        permission=Permission.OBJECT_READ,
    ),
)
