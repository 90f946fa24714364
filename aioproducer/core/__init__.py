"""Holds the rules, sans-I/O: time and randomness are arguments, and work to do is a return value."""
