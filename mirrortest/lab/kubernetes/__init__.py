"""Programs in the pods of a Kubernetes."""
