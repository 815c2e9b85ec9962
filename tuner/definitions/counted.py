"""A number of things, as one says it. Pure."""


def counted(count: int, thing: str) -> str:
    """`1 GPU`, `8 GPUs`."""
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"
