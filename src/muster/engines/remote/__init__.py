"""What engines share whose nodes are on other machines: contact with the servers of the nodes."""
