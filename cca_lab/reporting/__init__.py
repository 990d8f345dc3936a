"""How measurements are written and displayed: machine, JSON, tables, figures, progress."""
