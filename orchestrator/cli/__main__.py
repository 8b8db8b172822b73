"""`python -m orchestrator.cli`, for when the program `docexpress` is not on the path."""

from orchestrator.cli.main import main

main()
