"""What a worker does for a job, one file for each stage. Torch and the store, but no gRPC."""
