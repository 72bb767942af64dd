"""Authentication and authorisation: certificates, tokens, rules.

`loading.load` makes a `Security` of the settings, or raises with one line about what is wrong. All
files are reloaded when they change.
"""
