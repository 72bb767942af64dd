"""Tools of operators: commands, pages, metrics, alerts, explanations."""
