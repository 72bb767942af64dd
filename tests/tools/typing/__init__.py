"""Code as users write it, judged by type checkers and not run."""
