"""Writing numbered, timed messages and vouching for them: an application."""
