"""Who is there, and what may they do? Certificates, tokens, rules; knows nothing of groups' rules.

`loading.load` makes a `Security` of the settings, or says in one line what is wrong. Everything
in it that comes from files is read again when they change.
"""
