"""Programs that tests need and a machine may lack: had once, into the cache."""


class ToolMissingError(Exception):
    """A tool is not here and cannot be had; the text says why."""
