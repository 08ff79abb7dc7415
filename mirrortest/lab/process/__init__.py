"""The lab as processes of this machine."""
