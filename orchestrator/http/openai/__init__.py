"""OpenAI's API as far as it fits: models, chat completions, completions. See docs/http_api.md."""
