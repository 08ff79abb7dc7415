"""Programs that tests need and a machine may lack: put into the cache once."""


class ToolMissingError(Exception):
    """A tool is missing and cannot be installed; the text says why."""
