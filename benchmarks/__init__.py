"""Speed, memory and error, each beside a baseline that is measured in the same run."""
