"""The producer application: it sends numbered, timed messages and records how each send ended."""
