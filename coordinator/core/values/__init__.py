"""Values of both kinds of groups: what goes in, what comes out, what is written."""
