"""The rules of SASL authentication: mechanisms, the exchange with a broker, sessions. They know no loop, clock, thread or socket."""
