"""Measurements: time, memory, and what of a saving in pairs became one in time."""
