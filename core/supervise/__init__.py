"""The detached keeper of one run: starts accelerate, samples the machine, stops, clears up, explains the end.

Standard library, psutil and the samplers only: a keeper stays below 60 MB.
"""
