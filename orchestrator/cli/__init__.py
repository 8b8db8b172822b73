"""The command line. Importing it is cheap: every command imports what it needs when it runs."""

from orchestrator.cli.main import main

__all__ = ["main"]
