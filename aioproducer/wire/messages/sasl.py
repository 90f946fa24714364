"""The messages of authentication: SaslHandshake and SaslAuthenticate (KIP-43, KIP-152, KIP-368)."""

from __future__ import annotations

from typing import Final

# SaslHandshake has no flexible version.
TEXT: Final = """
SaslHandshake.request 0-1 flexible 32768
  mechanism str
SaslHandshake.response 0-1 flexible 32768
  error_code i16
  mechanisms [str]
SaslAuthenticate.request 0-2 flexible 2
  auth_bytes bytes secret
SaslAuthenticate.response 0-2 flexible 2
  error_code i16
  error_message str?
  auth_bytes bytes secret
  session_lifetime_ms i64 1+
"""
