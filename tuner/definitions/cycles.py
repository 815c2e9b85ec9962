"""Whether what depends on what ends where it began. Pure."""

from collections.abc import Mapping


def find_cycle(graph: Mapping[str, list[str]]) -> list[str] | None:
    """The first cycle, its first node repeated at its end, or None; unknown nodes are ignored."""
    done: set[str] = set()

    def visit(node: str, path: list[str]) -> list[str] | None:
        if node in path:
            return [*path[path.index(node) :], node]
        if node in done:
            return None
        found = (visit(other, [*path, node]) for other in graph.get(node, ()))
        cycle = next((cycle for cycle in found if cycle is not None), None)
        done.add(node)
        return cycle

    cycles = (visit(node, []) for node in graph)
    return next((cycle for cycle in cycles if cycle is not None), None)
