"""Whether a test can work, checked before it is run: an application that writes nothing."""
