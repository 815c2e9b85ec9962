"""The command-line flags that engines declare."""
