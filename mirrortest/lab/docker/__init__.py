"""The lab in containers of a Docker Engine."""
