"""Profiles: load, validate, list, compare, switch, save."""
