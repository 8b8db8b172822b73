"""The images, built for real and started as compose.yaml says."""
