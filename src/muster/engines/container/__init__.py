"""The engine `container`: nodes are containers of Docker or Podman on this machine."""
