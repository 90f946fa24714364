"""The security of a fake cluster: TLS, the servers of SASL, users, and denied operations; none of it is shared with the client."""
