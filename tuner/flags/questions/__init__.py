"""What an engine's own interpreter is asked: scripts of the standard library alone, sent as text.

They run there, so they import nothing of this package, and nothing newer than Python 3.9 knows.
"""
