"""Spark jobs over the flights, with everything killed that can be: tasks to coordinator."""
