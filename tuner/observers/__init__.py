"""Observers: what the machine and the engine do while a window is open, beside the load.

They look about once a second, in a process of their own, and never stop a measurement: what they
cannot see is missing from it, in words.
"""
