"""Programs in pods of a Kubernetes cluster."""
