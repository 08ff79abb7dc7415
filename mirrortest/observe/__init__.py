"""Figures of the machine around a test: host, disks, network, processes."""
