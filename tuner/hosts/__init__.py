"""Servers on machines: supervised processes, slots of GPUs and cores, Ray."""
