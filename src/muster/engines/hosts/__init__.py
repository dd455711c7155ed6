"""The engine `hosts`: nodes on machines that OpenSSH reaches."""
