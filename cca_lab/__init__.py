"""Long-context attention, from loops to models: `docs/` and the README say what is where."""
