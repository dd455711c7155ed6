"""Subnets, and how programs find their own address."""

from __future__ import annotations

from ipaddress import ip_address, ip_network

import pytest
from oci.core import VirtualNetworkClient
from oci.exceptions import ServiceError

from muster.server.settings import FileSettings, OciSettings, Settings
from muster.spec.ocids import TENANCY
from support.oci_teams import VISION, OciTeams, oci_teams

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


def test_one_of_each_is_listed(oci: OciTeams) -> None:
    client = oci.client(VirtualNetworkClient, "vera")
    (subnet,) = client.list_subnets(VISION).data
    (network,) = client.list_vcns(VISION).data
    (security,) = client.list_security_lists(TENANCY).data
    assert client.get_subnet(subnet.id).data == subnet
    assert client.get_vcn(subnet.vcn_id).data == network
    assert client.get_security_list(subnet.security_list_ids[0]).data == security


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
