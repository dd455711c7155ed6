"""A request for every route of the OCI API, and who gets its answer.

Viewers come first, then submitters, then the project's admin, who does what the cases say in their
order.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from random import randrange
from typing import Any
from urllib.parse import quote

import requests
from msgspec import Struct
from oci.data_science import DataScienceClient
from oci.data_science import models as ds
from oci.events import EventsClient
from oci.events import models as events
from oci.identity import IdentityClient
from oci.identity import models as identity
from oci.logging import LoggingManagementClient
from oci.logging import models as logging
from oci.object_storage import ObjectStorageClient
from oci.object_storage import models as storage
from requests.adapters import HTTPAdapter

from muster.identity import id_of
from muster.spec.ocids import TENANCY, ocid, secret_ocid, user_ocid
from muster.store.resource_records import ResourceFilter
from support.faults import until
from support.keys import public_pem
from support.oci_teams import VISION, OciTeams, signer_of

#: In the names of what only the members of `vision` may see.
MARK = "word-of-vision"
#: Who may do something, by the least that they need.
EVERYBODY = ("vera", "sam", "anouk", "oscar", "nora")
READ, SUBMIT, DELETE = EVERYBODY[:3], EVERYBODY[1:3], EVERYBODY[2:3]
#: It is about the user anouk, or something that only its creator may change.
SELF = ("anouk",)
MEMBERS = READ
NOW = datetime.now(UTC).isoformat()


class Case(Struct, frozen=True):
    """How a route is requested, and who may do that."""

    #: Who gets the answer of a success; others 404.
    allowed: tuple[str, ...]
    #: Parameter of the path -> what it names in `World.names`, or a text.
    path: dict[str, str] = {}
    query: str = ""
    body: Any = None
    status: int = 200
    #: Whether the answer differs for each caller, who get what is theirs.
    own: bool = False


#: Those who administer the project set its secrets, and write its policies.
SET_SECRETS = MANAGE = DELETE
#: None of them administers the server.
ADMINISTRATORS = ()
CONTENT = {"contentType": "BASE64", "content": "c2VjcmV0"}
PROJECT = {"project_id": "project"}
JOB, RUN, SCHEDULE = {"job_id": "job"}, {"job_run_id": "run"}, {"schedule_id": "schedule"}
WORK, GROUP = {"work_request_id": "work"}, {"log_group_id": "group"}
LOG_WORK = {"work_request_id": "log_work"}
LOG = {"log_group_id": "group", "log_id": "log"}
USER, SECRET, TENANT = {"user_id": "user"}, {"secret_id": "secret"}, {"tenancy_id": "tenancy"}
RULE = {"rule_id": "rule"}
POLICY, DYNAMIC_GROUP = {"policy_id": "policy"}, {"dynamic_group_id": "dynamic_group"}
USER_GROUP, MEMBERSHIP = {"group_id": "user_group"}, {"membership_id": "membership"}
IDENTITY_WORK = {"work_request_id": "identity_work"}
IDENTITY_DETAILS = {"compartmentId": "{tenancy}", "name": f"{MARK}-{{caller}}", "description": MARK}
STATEMENTS = ["Allow group vision-viewer to read buckets in compartment vision"]
NAMESPACE = {"namespace": "namespace"}
BUCKET = {"namespace": "namespace", "bucket": "bucket"}
OBJECT = {**BUCKET, "object...": "object"}
LINK = {**BUCKET, "link": "link"}
IN, IN_ROOT = "compartmentId={vision}", "compartmentId={tenancy}"
MOVE = {"compartmentId": "{vision}"}
NAMED = {"displayName": MARK}
OWN_NAME = {"displayName": f"{MARK}-{{caller}}"}
MADE = {"compartmentId": "{vision}", "displayName": MARK}
JOB_DETAILS = {
    "projectId": "{project}",
    "jobConfigurationDetails": {"jobType": "DEFAULT"},
    "jobInfrastructureConfigurationDetails": {
        "jobInfrastructureType": "ME_STANDALONE",
        "shapeName": "VM.Standard2.1",
        "blockStorageSizeInGBs": 50,
    },
    **MADE,
}
RUN_DETAILS = {"projectId": "{project}", "jobId": "{job}", **MADE}
SCHEDULE_DETAILS = {
    "projectId": "{project}",
    "trigger": {"triggerType": "CRON", "cronExpression": "0 3 1 1 *"},
    "action": {
        "actionType": "HTTP",
        "actionDetails": {
            "httpActionType": "CREATE_JOB_RUN",
            "createJobRunDetails": RUN_DETAILS,
        },
    },
    **MADE,
}
RULE_DETAILS = MADE | {
    "condition": "{}",
    "isEnabled": False,
    "actions": {
        "actions": [
            {"actionType": "FAAS", "isEnabled": True, "functionId": "https://example.org/f"}
        ]
    },
}
POINT = {"namespace": "mine", "name": "loss", "dimensions": {"a": MARK}} | {
    "compartmentId": "{vision}",
    "datapoints": [{"timestamp": NOW, "value": 1}],
}
LOG_BATCH = {"source": "s", "type": "t", "entries": [{"data": MARK}]}
SEARCH = {
    "timeStart": "2026-01-01T00:00:00Z",
    "timeEnd": "2026-01-02T00:00:00Z",
    "searchQuery": 'search "{vision}"',
}
#: The routes: those that show something, that change something, that delete.
CASES: dict[str, Case] = {
    "GET /20190101/projects": Case(READ, query=IN),
    "GET /20190101/projects/{project_id}": Case(READ, PROJECT),
    "GET /20190101/jobs": Case(READ, query=IN),
    "GET /20190101/jobs/{job_id}": Case(READ, JOB),
    "HEAD /20190101/jobs/{job_id}/artifact/content": Case(READ, JOB),
    "GET /20190101/jobs/{job_id}/artifact/content": Case(READ, JOB),
    "GET /20190101/jobRuns": Case(READ, query=IN),
    "GET /20190101/jobRuns/{job_run_id}": Case(READ, RUN),
    "GET /20190101/schedules": Case(READ, query=IN),
    "GET /20190101/schedules/{schedule_id}": Case(READ, SCHEDULE),
    "GET /20190101/jobShapes": Case(READ, query=IN),
    "GET /20190101/fastLaunchJobConfigs": Case(READ, query=IN),
    "GET /20190101/workRequests": Case(READ, query=IN),
    "GET /20190101/workRequests/{work_request_id}": Case(READ, WORK),
    "GET /20190101/workRequests/{work_request_id}/errors": Case(READ, WORK),
    "GET /20190101/workRequests/{work_request_id}/logs": Case(READ, WORK),
    "GET /20200531/workRequests": Case(READ, query=IN),
    "GET /20200531/workRequests/{work_request_id}": Case(READ, LOG_WORK),
    "GET /20200531/workRequests/{work_request_id}/errors": Case(READ, LOG_WORK),
    "GET /20200531/workRequests/{work_request_id}/logs": Case(READ, LOG_WORK),
    "GET /20200531/logGroups": Case(READ, query=IN),
    "GET /20200531/logGroups/{log_group_id}": Case(READ, GROUP),
    "GET /20200531/logGroups/{log_group_id}/logs": Case(READ, GROUP),
    "GET /20200531/logGroups/{log_group_id}/logs/{log_id}": Case(READ, LOG),
    "POST /20190909/search": Case(READ, body=SEARCH),
    "POST /20180401/metrics/actions/summarizeMetricsData": Case(
        READ, query=IN, body={"namespace": "mine", "query": "loss[1m].mean()"}
    ),
    "POST /20180401/metrics/actions/listMetrics": Case(READ, query=IN, body={}),
    "GET /20160918/users/{user_id}": Case(MEMBERS, USER),
    "GET /20160918/users": Case(EVERYBODY, query=IN_ROOT, own=True),
    "GET /20160918/users/{user_id}/apiKeys": Case(SELF, USER),
    "GET /20160918/groups": Case(EVERYBODY, query=IN_ROOT, own=True),
    "GET /20160918/groups/{group_id}": Case(READ, {"group_id": "role"}),
    "GET /20160918/userGroupMemberships": Case(
        EVERYBODY, query=f"{IN_ROOT}&userId={{user}}", own=True
    ),
    "GET /20160918/userGroupMemberships/{membership_id}": Case(READ, MEMBERSHIP),
    "GET /20160918/dynamicGroups": Case(ADMINISTRATORS, query=IN_ROOT),
    "GET /20160918/dynamicGroups/{dynamic_group_id}": Case(ADMINISTRATORS, DYNAMIC_GROUP),
    "GET /20160918/policies": Case(READ, query=IN),
    "GET /20160918/policies/{policy_id}": Case(READ, POLICY),
    "GET /20160918/workRequests": Case(READ, query=IN),
    "GET /20160918/workRequests/{work_request_id}": Case(READ, IDENTITY_WORK),
    "GET /20160918/workRequests/{work_request_id}/errors": Case(READ, IDENTITY_WORK),
    "GET /20160918/workRequests/{work_request_id}/logs": Case(READ, IDENTITY_WORK),
    "GET /20160918/tenancies/{tenancy_id}": Case(EVERYBODY, TENANT),
    "GET /20160918/compartments/{compartment_id}": Case(READ, {"compartment_id": "vision"}),
    "GET /20160918/compartments": Case(EVERYBODY, query=IN_ROOT, own=True),
    "GET /20160918/tenancies/{tenancy_id}/regionSubscriptions": Case(EVERYBODY, TENANT),
    "GET /20160918/regions": Case(EVERYBODY),
    "GET /20160918/availabilityDomains": Case(READ, query=IN),
    "GET /20160918/faultDomains": Case(READ, query=f"{IN}&availabilityDomain=AD-1"),
    "GET /20160918/subnets/{subnet_id}": Case(EVERYBODY, {"subnet_id": "ocid1.subnet.oc1..a"}),
    "GET /20160918/subnets": Case(READ, query=IN),
    "GET /20160918/vcns/{vcn_id}": Case(EVERYBODY, {"vcn_id": "ocid1.vcn.oc1..a"}),
    "GET /20160918/vcns": Case(READ, query=IN),
    "GET /20160918/securityLists/{security_list_id}": Case(
        EVERYBODY, {"security_list_id": "ocid1.securitylist.oc1..a"}
    ),
    "GET /20160918/securityLists": Case(READ, query=IN),
    "GET /20160918/privateIps": Case(EVERYBODY, query="subnetId=ocid1.subnet.oc1..a"),
    "GET /20180608/secrets": Case(READ, query=IN),
    "GET /20180608/secrets/{secret_id}": Case(READ, SECRET),
    "POST /20180608/secrets": Case(
        SET_SECRETS,
        body={
            **{"compartmentId": "{vision}", "vaultId": "{vault}"},
            "secretName": "S-{caller}",
            "secretContent": CONTENT,
        },
    ),
    "PUT /20180608/secrets/{secret_id}": Case(SET_SECRETS, SECRET, body={"secretContent": CONTENT}),
    "GET /20190301/secretbundles/{secret_id}/versions": Case(READ, SECRET),
    "GET /20190301/secretbundles/{secret_id}": Case(SUBMIT, SECRET),
    "POST /20190301/secretbundles/actions/getByName": Case(
        SUBMIT, query=f"secretName={MARK}&vaultId={{vault}}"
    ),
    "POST /20180409/resources": Case(
        EVERYBODY, body={"type": "Structured", "query": "query all resources"}, own=True
    ),
    "GET /20180409/resourceTypes": Case(EVERYBODY),
    "GET /n": Case(EVERYBODY),
    "GET /n/{namespace}": Case(EVERYBODY, NAMESPACE),
    "GET /n/{namespace}/b": Case(READ, NAMESPACE, query=IN),
    "GET /n/{namespace}/b/{bucket}": Case(READ, BUCKET),
    "HEAD /n/{namespace}/b/{bucket}": Case(READ, BUCKET),
    "GET /n/{namespace}/b/{bucket}/o": Case(READ, BUCKET),
    "GET /n/{namespace}/b/{bucket}/o/{object...}": Case(READ, OBJECT),
    "GET /n/{namespace}/b/{bucket}/replicationPolicies": Case(READ, BUCKET),
    "GET /n/{namespace}/b/{bucket}/replicationSources": Case(READ, BUCKET),
    "GET /n/{namespace}/b/{bucket}/retentionRules": Case(READ, BUCKET),
    "HEAD /n/{namespace}/b/{bucket}/o/{object...}": Case(READ, OBJECT),
    "GET /n/{namespace}/b/{bucket}/u": Case(SUBMIT, BUCKET),
    "GET /n/{namespace}/b/{bucket}/u/{object...}": Case(SUBMIT, OBJECT, "uploadId={upload}"),
    "GET /n/{namespace}/b/{bucket}/p": Case(SUBMIT, BUCKET),
    "GET /n/{namespace}/b/{bucket}/p/{link}": Case(SUBMIT, LINK),
    "GET /workRequests": Case(READ, query=IN),
    "GET /workRequests/{work_request}": Case(READ, {"work_request": "copy"}),
    "GET /workRequests/{work_request}/errors": Case(READ, {"work_request": "copy"}),
    "GET /workRequests/{work_request}/logs": Case(READ, {"work_request": "copy"}),
    "GET /20181201/rules": Case(READ, query=IN),
    "GET /20181201/rules/{rule_id}": Case(READ, RULE),
    # changes
    "POST /20160918/users": Case(ADMINISTRATORS, body=IDENTITY_DETAILS),
    "PUT /20160918/users/{user_id}": Case(ADMINISTRATORS, USER, body={"description": MARK}),
    "PUT /20160918/users/{user_id}/state": Case(ADMINISTRATORS, USER, body={"blocked": False}),
    "DELETE /20160918/users/{user_id}": Case(ADMINISTRATORS, USER, status=409),
    "POST /20160918/groups": Case(ADMINISTRATORS, body=IDENTITY_DETAILS),
    "PUT /20160918/groups/{group_id}": Case(ADMINISTRATORS, USER_GROUP, body={"description": "x"}),
    "POST /20160918/userGroupMemberships": Case(
        ADMINISTRATORS, body={"userId": "{user}", "groupId": "{user_group}"}
    ),
    "DELETE /20160918/userGroupMemberships/{membership_id}": Case(
        ADMINISTRATORS, {"membership_id": "user_membership"}, status=204
    ),
    "DELETE /20160918/groups/{group_id}": Case(
        ADMINISTRATORS, {"group_id": "empty_user_group"}, status=204
    ),
    "POST /20160918/dynamicGroups": Case(
        ADMINISTRATORS,
        body=IDENTITY_DETAILS
        | {"name": "runs-{caller}", "matchingRule": "resource.type = 'datasciencejobrun'"},
    ),
    "PUT /20160918/dynamicGroups/{dynamic_group_id}": Case(
        ADMINISTRATORS, DYNAMIC_GROUP, body={"description": "x"}
    ),
    "DELETE /20160918/dynamicGroups/{dynamic_group_id}": Case(
        ADMINISTRATORS, DYNAMIC_GROUP, status=204
    ),
    "POST /20160918/policies": Case(
        MANAGE,
        body=IDENTITY_DETAILS | {"compartmentId": "{vision}", "statements": STATEMENTS},
    ),
    "PUT /20160918/policies/{policy_id}": Case(MANAGE, POLICY, body={"description": MARK}),
    "DELETE /20160918/policies/{policy_id}": Case(MANAGE, POLICY, status=204),
    "POST /20160918/compartments": Case(
        ADMINISTRATORS, body=IDENTITY_DETAILS | {"compartmentId": "{vision}"}
    ),
    "PUT /20160918/compartments/{compartment_id}": Case(
        MANAGE, {"compartment_id": "vision"}, body={"description": MARK}
    ),
    "POST /20160918/compartments/{compartment_id}/actions/moveCompartment": Case(
        *(ADMINISTRATORS, {"compartment_id": "vision"}, ""),
        *({"targetCompartmentId": "{tenancy}"}, 202),
    ),
    "DELETE /20160918/compartments/{compartment_id}": Case(
        ADMINISTRATORS, {"compartment_id": "inner"}, status=202
    ),
    "POST /20181201/rules": Case(SUBMIT, body=RULE_DETAILS),
    "PUT /20181201/rules/{rule_id}": Case(SELF, RULE, body=NAMED),
    "POST /20190101/projects": Case(SUBMIT, body=MADE),
    "PUT /20190101/projects/{project_id}": Case(SELF, PROJECT, body=NAMED),
    "POST /20190101/jobs": Case(SUBMIT, body=JOB_DETAILS),
    "PUT /20190101/jobs/{job_id}": Case(SELF, JOB, body=NAMED),
    "POST /20190101/jobs/{job_id}/artifact": Case(
        SELF, {"job_id": "bare"}, body=b"print(1)", status=204
    ),
    "POST /20190101/jobRuns": Case(SUBMIT, body=RUN_DETAILS),
    "PUT /20190101/jobRuns/{job_run_id}": Case(SELF, RUN, body=NAMED),
    "POST /20190101/jobRuns/{job_run_id}/actions/cancelJobRun": Case(
        SELF, {"job_run_id": "live"}, status=202
    ),
    "POST /20190101/schedules": Case(SUBMIT, body=SCHEDULE_DETAILS),
    "PUT /20190101/schedules/{schedule_id}": Case(SELF, SCHEDULE, body=NAMED, status=202),
    "POST /20190101/schedules/{schedule_id}/actions/deactivate": Case(SELF, SCHEDULE, status=202),
    "POST /20190101/schedules/{schedule_id}/actions/activate": Case(SELF, SCHEDULE, status=202),
    "POST /20200531/logGroups": Case(SUBMIT, body=MADE | OWN_NAME, status=202),
    "PUT /20200531/logGroups/{log_group_id}": Case(SUBMIT, GROUP, body=NAMED),
    "POST /20200531/logGroups/{log_group_id}/logs": Case(
        SUBMIT, GROUP, body=OWN_NAME | {"logType": "CUSTOM"}, status=202
    ),
    "PUT /20200531/logGroups/{log_group_id}/logs/{log_id}": Case(
        SUBMIT, LOG, body=NAMED, status=202
    ),
    "POST /20200831/logs/{log_id}/actions/push": Case(
        SUBMIT, {"log_id": "log"}, body={"specversion": "1.0", "logEntryBatches": [LOG_BATCH]}
    ),
    "POST /20180401/metrics": Case(SUBMIT, body={"metricData": [POINT]}),
    "POST /20160918/users/{user_id}/apiKeys": Case(SELF, USER, body={"key": public_pem(201)}),
    "DELETE /20160918/users/{user_id}/apiKeys/{fingerprint}": Case(
        SELF, {**USER, "fingerprint": "fingerprint"}, status=204
    ),
    "PUT /n/{namespace}/b/{bucket}/o/{object...}": Case(SUBMIT, OBJECT, body=b"data"),
    "POST /n/{namespace}/b/{bucket}/actions/copyObject": Case(
        SUBMIT,
        BUCKET,
        body={
            "sourceObjectName": "{object}",
            "destinationRegion": "muster",
            "destinationNamespace": "{namespace}",
            "destinationBucket": "{bucket}",
            "destinationObjectName": f"{MARK}-copy",
        },
        status=202,
    ),
    "POST /n/{namespace}/b/{bucket}/u": Case(SUBMIT, BUCKET, body={"object": MARK}),
    "PUT /n/{namespace}/b/{bucket}/u/{object...}": Case(
        SUBMIT, OBJECT, "uploadId={upload}&uploadPartNum=1", body=b"part"
    ),
    "POST /n/{namespace}/b": Case(
        DELETE, NAMESPACE, body={"name": f"{MARK}-other", "compartmentId": "{vision}"}
    ),
    "POST /n/{namespace}/b/{bucket}": Case(DELETE, BUCKET, body={"metadata": {"a": "b"}}),
    "POST /n/{namespace}/b/{bucket}/p": Case(
        SUBMIT,
        BUCKET,
        body={"name": MARK, "accessType": "AnyObjectRead", "timeExpires": "2036-01-01T00:00:00Z"},
    ),
    # moves and deletions
    "POST /20181201/rules/{rule_id}/actions/changeCompartment": Case(SELF, RULE, "", MOVE, 204),
    "DELETE /20181201/rules/{rule_id}": Case(SELF, RULE, status=204),
    "POST /20190101/projects/{project_id}/actions/changeCompartment": Case(
        *(DELETE, PROJECT, "", MOVE, 204)
    ),
    "POST /20190101/jobs/{job_id}/actions/changeCompartment": Case(DELETE, JOB, "", MOVE, 204),
    "POST /20190101/jobRuns/{job_run_id}/actions/changeCompartment": Case(
        *(DELETE, RUN, "", MOVE, 204)
    ),
    "POST /20190101/schedules/{schedule_id}/actions/changeCompartment": Case(
        *(DELETE, SCHEDULE, "", MOVE, 202)
    ),
    "POST /20200531/logGroups/{log_group_id}/actions/changeCompartment": Case(
        *(DELETE, GROUP, "", MOVE, 202)
    ),
    "DELETE /20190101/schedules/{schedule_id}": Case(DELETE, SCHEDULE, status=202),
    "DELETE /20190101/jobRuns/{job_run_id}": Case(DELETE, RUN, status=204),
    "DELETE /20190101/jobs/{job_id}": Case(DELETE, {"job_id": "spare"}, status=202),
    "DELETE /20190101/projects/{project_id}": Case(DELETE, {"project_id": "empty"}, status=202),
    "DELETE /20190101/workRequests/{work_request_id}": Case(DELETE, WORK, status=409),
    "DELETE /20200531/logGroups/{log_group_id}/logs/{log_id}": Case(DELETE, LOG, status=202),
    "DELETE /20200531/logGroups/{log_group_id}": Case(
        DELETE, {"log_group_id": "empty_group"}, status=202
    ),
    "POST /n/{namespace}/b/{bucket}/u/{object...}": Case(
        SUBMIT, OBJECT, "uploadId={upload}", {"partsToCommit": []}, 400
    ),
    "DELETE /n/{namespace}/b/{bucket}/u/{object...}": Case(
        SUBMIT, OBJECT, "uploadId={upload}", status=204
    ),
    "POST /n/{namespace}/b/{bucket}/actions/renameObject": Case(
        SUBMIT, BUCKET, body={"sourceName": "{second}", "newName": "{third}"}
    ),
    "POST /n/{namespace}/b/{bucket}/actions/batchDeleteObjects": Case(
        SUBMIT, BUCKET, body={"objects": [{"objectName": "{third}"}]}
    ),
    "DELETE /n/{namespace}/b/{bucket}/o/{object...}": Case(SUBMIT, OBJECT, status=204),
    "DELETE /n/{namespace}/b/{bucket}/p/{link}": Case(SUBMIT, LINK, status=204),
    "DELETE /workRequests/{work_request}": Case(READ, {"work_request": "copy"}, status=409),
    "DELETE /n/{namespace}/b/{bucket}": Case(
        DELETE, {**BUCKET, "bucket": "empty_bucket"}, status=204
    ),
    "POST /v1/authentication/refresh": Case(EVERYBODY, body={"currentToken": "x"}, status=401),
}


class World:
    """The server, and what the project `vision` has."""

    def __init__(self, oci: OciTeams) -> None:
        self.oci = oci
        self.client = oci.client(DataScienceClient)
        logs = oci.client(LoggingManagementClient)
        buckets = oci.client(ObjectStorageClient)
        oci.teams.request(
            *("PUT", f"/v1/secrets/{MARK}", oci.teams.token("anouk")), {"value": MARK}
        )
        fingerprint = oci.teams.accounts.add_key("anouk", public_pem(200)).fingerprint
        client, run = oci.run_job(f"print({MARK!r})", name=MARK)
        found = client.get_job_run(run).data
        _, live = oci.run_job("import time; time.sleep(600)", name=MARK)
        until(lambda: client.get_job_run(run).data.lifecycle_state == "SUCCEEDED", "it succeeds")

        def project(name: str) -> str:
            details = ds.CreateProjectDetails(compartment_id=VISION, display_name=name)
            made: str = client.create_project(details).data.id
            return made

        def group(name: str) -> str:
            details = logging.CreateLogGroupDetails(compartment_id=VISION, display_name=name)
            work = logs.create_log_group(details).headers["opc-work-request-id"]
            made: str = logs.get_work_request(work).data.resources[0].identifier
            return made

        def bucket(name: str) -> str:
            details = storage.CreateBucketDetails(name=name, compartment_id=VISION)
            buckets.create_bucket(namespace, details)
            return name

        namespace = buckets.get_namespace().data
        job = ds.CreateJobDetails(**{**_job_of(client, found.job_id), "display_name": MARK})
        log_group, name = group(MARK), bucket(f"{MARK}-bucket")
        log_work = logs.create_log(
            log_group, logging.CreateLogDetails(display_name=MARK, log_type="CUSTOM")
        ).headers["opc-work-request-id"]
        for one in (MARK, "of-sam", "second-of-sam", "second-of-anouk"):
            buckets.put_object(namespace, name, one, b"content")
        link = storage.CreatePreauthenticatedRequestDetails(
            name=MARK, access_type="AnyObjectRead", time_expires=datetime(2036, 1, 1, tzinfo=UTC)
        )
        copy = storage.CopyObjectDetails(
            source_object_name=MARK,
            destination_region="muster",
            destination_namespace=namespace,
            destination_bucket=name,
            destination_object_name=f"{MARK}-4",
        )
        schedule = ds.CreateScheduleDetails(
            display_name=MARK,
            project_id=found.project_id,
            compartment_id=VISION,
            trigger=ds.ScheduleCronTrigger(cron_expression="0 3 1 1 *"),
            action=ds.ScheduleHttpAction(
                action_details=ds.CreateJobRunScheduleActionDetails(
                    create_job_run_details=ds.CreateJobRunDetails(
                        project_id=found.project_id, compartment_id=VISION, job_id=found.job_id
                    )
                )
            ),
        )

        def link_of() -> str:
            made: str = buckets.create_preauthenticated_request(namespace, name, link).data.id
            return made

        def upload_of(one: str) -> str:
            details = storage.CreateMultipartUploadDetails(object=one)
            made: str = buckets.create_multipart_upload(namespace, name, details).data.upload_id
            return made

        rule = events.CreateRuleDetails(
            display_name=MARK,
            compartment_id=VISION,
            condition="{}",
            is_enabled=False,
            actions=events.ActionDetailsList(
                actions=[
                    events.CreateFaaSActionDetails(
                        is_enabled=True, function_id="https://example.org/f"
                    )
                ]
            ),
        )

        root, admin = oci.client(IdentityClient, "root"), oci.client(IdentityClient)
        named = {"compartment_id": TENANCY, "name": MARK, "description": MARK}
        matching = "resource.type = 'datasciencejobrun'"

        def compartment(name: str) -> str:
            given = named | {"compartment_id": VISION, "name": name}
            details = identity.CreateCompartmentDetails(**given)
            made: str = root.create_compartment(details).data.id
            return made

        def user_group(name: str) -> str:
            details = identity.CreateGroupDetails(**named | {"name": name})
            made: str = root.create_group(details).data.id
            return made

        readers = user_group(MARK)
        add = identity.AddUserToGroupDetails(user_id=user_ocid("vera"), group_id=readers)
        policy = identity.CreatePolicyDetails(
            **named | {"compartment_id": VISION}, statements=STATEMENTS
        )
        role = ocid("group", id_of("group", "vision", "viewer"))

        #: What each name in the cases is; NAME-USER: for one user.
        self.names: dict[str, str] = {
            "vision": VISION,
            "tenancy": TENANCY,
            "user": user_ocid("anouk"),
            "fingerprint": fingerprint,
            "role": role,
            "membership": ocid("groupmembership", id_of(role, user_ocid("vera"))),
            "user_group": readers,
            "user_membership": root.add_user_to_group(add).data.id,
            "empty_user_group": user_group(f"{MARK}-empty"),
            "inner": compartment(f"{MARK}-inner"),
            "dynamic_group": root.create_dynamic_group(
                identity.CreateDynamicGroupDetails(
                    **named | {"name": f"{MARK}-runs"}, matching_rule=matching
                )
            ).data.id,
            "policy": admin.create_policy(policy).data.id,
            "identity_work": root.delete_compartment(compartment(MARK)).headers[
                "opc-work-request-id"
            ],
            "project": found.project_id,
            "empty": project(MARK),
            "job": found.job_id,
            "bare": client.create_job(job).data.id,
            "spare": client.create_job(job).data.id,
            "run": run,
            "live": live,
            "schedule": client.create_schedule(schedule).data.id,
            "group": log_group,
            "empty_group": group(f"{MARK}-empty"),
            "log": logs.list_logs(log_group).data[0].id,
            "work": client.delete_job(client.create_job(job).data.id).headers[
                "opc-work-request-id"
            ],
            "log_work": log_work,
            "secret": secret_ocid("vision", MARK),
            "vault": ocid("vault", id_of("vault", "vision")),
            "namespace": namespace,
            "bucket": name,
            "empty_bucket": bucket(f"{MARK}-empty"),
            "object": MARK,
            "upload": upload_of(MARK),
            "upload-sam": upload_of("of-sam"),
            "link": link_of(),
            "link-sam": link_of(),
            "object-sam": "of-sam",
            "second": "second-of-anouk",
            "second-sam": "second-of-sam",
            "third": "third-of-anouk",
            "third-sam": "third-of-sam",
            "rule": oci.client(EventsClient).create_rule(rule).data.id,
            "copy": buckets.copy_object(namespace, name, copy).headers["opc-work-request-id"],
        }
        #: The same for what there is not.
        self.nothing = {
            key: value if key in ("vision", "tenancy", "user", "namespace") else _other(value)
            for key, value in self.names.items()
        }

    def request(
        self, route: str, user: str | None, names: Mapping[str, str], key: str | None = None
    ) -> requests.Response:
        """The answer to a case. user: who signs; None: nobody. key: another private key."""
        case, (verb, _, path) = CASES[route], route.partition(" ")
        # what each caller deletes is another one
        own = {key.removesuffix(f"-{user}"): one for key, one in names.items() if f"-{user}" in key}
        names = {**names, **own, "caller": user or ""}
        for parameter, name in case.path.items():
            path = path.replace(f"{{{parameter}}}", quote(names.get(name, name), safe=""))
        values = {name: quote(value, safe="") for name, value in names.items()}
        query = case.query.format_map(values)
        body = case.body
        data = body if isinstance(body, bytes) or body is None else json.dumps(_filled(body, names))
        headers = {"content-type": "application/json"}
        if isinstance(body, bytes):
            headers = {
                "content-type": "application/octet-stream",
                "content-disposition": "attachment; filename=main.py",
            }
        url = f"{self.oci.url}{path}" + (f"?{query}" if query else "")
        prepared = requests.Request(verb, url, headers, data=data).prepare()
        if user is not None:
            signer = signer_of(user, key)
            signer.do_request_sign(prepared, enforce_content_headers=not isinstance(body, bytes))
        with requests.Session() as session:
            session.mount("http://", _FromAnywhere())
            return session.send(prepared, timeout=60)

    def recorded(self) -> Any:
        """All that there is of the project."""
        store = self.oci.teams.backend.store
        kinds = ("datascienceproject", "datasciencejob", "datasciencejobrun", "loggroup", "log")
        resources = [store.resources.listing(ResourceFilter(kind, "vision")) for kind in kinds]
        plain = [[(one.id, one.name, one.version) for one in found] for found in resources]
        keys = [key.fingerprint for key in store.keys.listing("anouk")]
        state = store.policies.load()
        identity = [
            [(one.id, one.version) for one in found]
            for found in (state.policies, state.groups, state.dynamic_groups)
        ]
        compartments = [(one.name, one.description, one.parent) for one in state.projects]
        schedules = [one.id for one in store.schedules.listing("vision")]
        return plain, keys, schedules, identity, compartments, store.accounts.users()


class _FromAnywhere(HTTPAdapter):
    """Each connection comes from another address, so that wrong keys are not taken for guesses."""

    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        source = f"127.{randrange(1, 255)}.{randrange(255)}.{randrange(1, 255)}"
        super().init_poolmanager(*args, **options, source_address=(source, 0))


def _job_of(client: Any, job: str) -> dict[str, Any]:
    found = client.get_job(job).data
    names = ("job_configuration_details", "job_infrastructure_configuration_details")
    given = {name: getattr(found, name) for name in names}
    return {"project_id": found.project_id, "compartment_id": VISION, **given}


def _other(value: str) -> str:
    """A name of the same form of something that there is not."""
    return value.replace(MARK, "word-of-others")[:-4] + "0000"


def _filled(value: Any, names: Mapping[str, str]) -> Any:
    """A body with the names in its texts."""
    if isinstance(value, str):
        return re.sub(r"\{(\w+)\}", lambda found: names.get(found[1], found[0]), value)
    if isinstance(value, dict):
        return {key: _filled(one, names) for key, one in value.items()}
    if isinstance(value, list):
        return [_filled(one, names) for one in value]
    return value
