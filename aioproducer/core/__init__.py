"""The rules, sans-I/O: time and randomness are arguments, what is owed is given back. Knows no loop, clock or socket."""
