"""What producing and judging cost, beside the tools that people use."""
