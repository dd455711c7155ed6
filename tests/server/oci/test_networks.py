"""Subnets, and how programs find their own address."""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest
from oci.core import VirtualNetworkClient
from oci.exceptions import ServiceError

from muster.server.settings import FileSettings, OciSettings, Settings
from muster.spec.ocids import TENANCY
from support.faults import until
from support.oci_config import write_config
from support.oci_teams import VISION, OciTeams, config_of, oci_teams

SUBNET = "ocid1.subnet.oc1.iad.aaaatheirs"


def test_any_subnet_has_the_addresses_of_nodes(oci: OciTeams) -> None:
    client = oci.client(VirtualNetworkClient, "vera")
    subnet = client.get_subnet(SUBNET).data
    assert (subnet.id, subnet.lifecycle_state) == (SUBNET, "AVAILABLE")
    # what `what_is_my_ip` of ADS's distributed jobs does, on a node without a network of its own
    assert ip_address("127.0.0.1") in ip_network(subnet.cidr_block)
    network = client.get_vcn(subnet.vcn_id).data
    assert network.cidr_block == subnet.cidr_block
    (security,) = subnet.security_list_ids
    rules = client.get_security_list(security).data
    assert [rule.protocol for rule in rules.ingress_security_rules] == ["all"]
    assert rules.ingress_security_rules[0].tcp_options is None
    assert rules.vcn_id == subnet.vcn_id


#: As distributed jobs of ADS do it: the address of this machine that is in the job's subnet.
FIND_OWN_ADDRESS = """
import ipaddress, os, socket, sys
import oci, psutil

config, url = oci.config.from_file(os.environ["CONFIG"]), os.environ["URL"]
jobs = oci.data_science.DataScienceClient(config, service_endpoint=url)
job = jobs.get_job(os.environ["JOB_OCID"]).data
subnet = job.job_infrastructure_configuration_details.subnet_id
client = oci.core.VirtualNetworkClient(config, service_endpoint=url)
block = ipaddress.ip_network(client.get_subnet(subnet).data.cidr_block)
found = (found[0].address for found in psutil.net_if_addrs().values())
own = next(address for address in found if ipaddress.ip_address(address) in block)
with socket.create_server((own, 0)):
    print(own)
"""


def test_a_job_run_finds_its_own_address(oci: OciTeams, tmp_path: Path) -> None:
    pytest.importorskip("psutil")
    config = tmp_path / "config"
    write_config(config, config_of("sam"))
    environ = f"import os; os.environ.update(CONFIG={str(config)!r}, URL={oci.url!r})\n"
    client, run = oci.run_job(environ + FIND_OWN_ADDRESS, subnet=SUBNET)
    ended = ("SUCCEEDED", "FAILED")
    until(lambda: client.get_job_run(run).data.lifecycle_state in ended, "it has ended", 60)
    found = client.get_job_run(run).data
    assert found.lifecycle_state == "SUCCEEDED", found.lifecycle_details


def test_one_of_each_is_listed(oci: OciTeams) -> None:
    client = oci.client(VirtualNetworkClient, "vera")
    (subnet,) = client.list_subnets(VISION).data
    (network,) = client.list_vcns(VISION).data
    (security,) = client.list_security_lists(TENANCY).data
    assert client.get_subnet(subnet.id).data == subnet
    assert client.get_vcn(subnet.vcn_id).data == network
    assert client.get_security_list(subnet.security_list_ids[0]).data == security


def test_no_address_of_a_subnet_is_taken(oci: OciTeams) -> None:
    # programs count them to see whether a job run finds room
    assert oci.client(VirtualNetworkClient, "vera").list_private_ips(subnet_id=SUBNET).data == []


def test_another_kind_of_resource_is_not_found(oci: OciTeams) -> None:
    client = oci.client(VirtualNetworkClient, "vera")
    for call in (client.get_subnet, client.get_vcn, client.get_security_list):
        with pytest.raises(ServiceError) as refused:
            call("ocid1.instance.oc1.iad.aaaa")
        assert refused.value.status == 404


def test_the_block_is_a_setting() -> None:
    file = FileSettings(separate_owners=False, oci=OciSettings(subnet="10.1.0.0/16"))
    with oci_teams(Settings(file=file)) as oci:
        assert oci.client(VirtualNetworkClient).get_subnet(SUBNET).data.cidr_block == "10.1.0.0/16"
