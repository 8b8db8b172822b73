"""The HTTP API: jobs and states under /v1, and what clients of OpenAI's API expect. See docs/http_api.md."""
