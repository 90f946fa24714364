"""The mutants of SASL, secrets and their options; those of TLS are among the others."""

from __future__ import annotations

from typing import Final

from tests.tools.mutants.listed import Mutant

__all__ = ["SECURITY"]

SECURITY: Final = (
    Mutant(
        "a-broker-need-not-know-the-password",
        "sasl/scram.py",
        "if not hmac.compare_digest(hmac.digest(keys.server.reveal(), signed, self._hash_name), signature):",
        "if not signature:",
        ("tests/sasl/test_scram.py",),
    ),
    Mutant(
        "a-signature-of-another-exchange-is-a-proof",
        "sasl/scram.py",
        'signed = b",".join((bare, answer, unproved))',
        'signed = b",".join((bare.partition(b",r=")[0], answer.partition(b",")[2], b"c=biws"))',
        ("tests/sasl/test_scram.py",),
    ),
    Mutant(
        "a-cheap-derivation-is-taken",
        "sasl/scram.py",
        "MIN_ITERATIONS: Final = 4_096",
        "MIN_ITERATIONS: Final = 1",
        ("tests/sasl/test_scram.py",),
    ),
    Mutant(
        "a-nonce-without-the-clients-is-taken",
        "sasl/scram.py",
        'not match["nonce"].startswith(nonce) or ',
        "",
        ("tests/sasl/test_scram.py",),
    ),
    Mutant(
        "a-rotated-password-has-the-keys-of-the-old-one",
        "sasl/scram.py",
        "known is not None and known.password == password",
        "known is not None",
        ("tests/sasl/test_scram.py",),
    ),
    Mutant(
        "plain-goes-on-after-its-message",
        "sasl/plain.py",
        "        if challenge:\n",
        "        if False:\n",
        ("tests/sasl/test_handshake.py",),
    ),
    Mutant(
        "a-refusal-within-an-answer-is-a-success",
        "sasl/handshake.py",
        "        _check(answer, mechanism)\n        token",
        "        token",
        ("tests/sasl/test_handshake.py",),
    ),
    Mutant(
        "requests-that-a-renewal-held-are-forgotten",
        "net/connection.py",
        "        for send, _ in self._requests:\n            send()\n",
        "",
        ("tests/net/test_reauthentication.py",),
    ),
    Mutant(
        "requests-that-a-lost-renewal-held-are-forgotten",
        "net/connection.py",
        "return [on_end for _, on_end in self._requests]",
        "return []",
        ("tests/net/test_reauthentication.py", "tests/scenarios/test_sasl.py"),
    ),
    Mutant(
        "a-renewal-is-a-use-of-the-connection",
        "net/connection.py",
        "        self._connection.used_at = self._used_at\n",
        "",
        ("tests/net/test_reauthentication.py",),
    ),
    Mutant(
        "what-a-renewal-holds-back-counts-as-sent",
        "engine/sender/sender.py",
        "if connection.held is not None:",
        "if False:",
        ("tests/scenarios/test_sasl.py",),
    ),
    Mutant(
        "a-renewal-lets-produce-requests-pass",
        "net/cluster.py",
        "            and connection.held is None\n",
        "",
        ("tests/net/test_reauthentication.py",),
    ),
    Mutant(
        "the-gate-never-opens",
        "sasl/gate.py",
        "        if self.is_shut:\n            self.is_shut = False\n",
        "        if self.is_shut:\n",
        ("tests/sasl/test_gate.py",),
    ),
    Mutant(
        "the-gate-never-shuts-for-a-new-connection",
        "sasl/gate.py",
        "        if not self.is_shut:\n            self.is_shut = True\n        elif",
        "        if",
        ("tests/sasl/test_gate.py",),
    ),
    Mutant(
        "the-gate-never-shuts-for-a-renewal",
        "sasl/gate.py",
        "            self.is_shut = True\n            self._probes_refused = 0\n",
        "            self._probes_refused = 0\n",
        ("tests/sasl/test_gate.py",),
    ),
    Mutant(
        "a-probe-without-a-verdict-holds-up-the-others",
        "net/login_gate.py",
        "            self._gate.end(where)\n",
        "            pass\n",
        ("tests/net/test_sasl_login.py",),
    ),
    Mutant(
        "what-a-users-function-raises-is-quoted",
        "net/tls_contexts.py",
        'raised {type(error).__name__}") from None',
        'raised {error!r}") from error',
        ("tests/net/test_tls_contexts.py",),
    ),
    Mutant(
        "options-of-sasl-without-sasl-are-ignored",
        "config/security_options.py",
        "    if protocol not in _SASL:\n        remedy",
        "    if False:\n        remedy",
        ("tests/config/test_security_options.py",),
    ),
    Mutant(
        "the-scheme-of-an-address-overrules-the-protocol",
        "config/security_options.py",
        "if not isinstance(protocol, Assumed) and protocol != scheme:",
        "if False:",
        ("tests/config/test_security_options.py",),
    ),
    Mutant(
        "two-sources-of-the-clients-key-are-taken",
        "config/security_options.py",
        "if _has(config, first) and _has(config, second):",
        "if False:",
        ("tests/config/test_security_options.py",),
    ),
    Mutant(
        "a-repr-has-the-secret",
        "config/secret.py",
        """return f"<Secret {self.reference or 'hidden'}>\"""",
        """return f"<Secret {self.reference or self._read()}>\"""",
        ("tests/config/test_secret.py",),
    ),
    Mutant(
        "a-secret-is-pickled",
        "config/secret.py",
        '            raise TypeError("a secret that was given as text is not pickled: give a reference such as ${env:NAME} or ${file:/path}")\n',
        "            return Secret, (self.reveal(),)\n",
        ("tests/config/test_secret.py",),
    ),
    Mutant(
        "a-misspelt-password-is-shown",
        "config/option_names.py",
        "return place is _OF_BREAKER or name == _LEVEL or is_translated(name)",
        "return True",
        ("tests/config/test_security_options.py",),
    ),
    Mutant(
        "another-clients-dict-stays-in-a-frame",
        "config/producer_config.py",
        "return config if config is None or isinstance(config, ProducerConfig) else type(config)",
        "return type(config) if isinstance(config, str) else config",
        ("tests/config/test_security_options.py",),
    ),
    Mutant(
        "three-brokers-that-refuse-are-not-believed",
        "engine/metadata/metadata_updater.py",
        " or sum(refusals) >= _REFUSALS_IN_ALL",
        "",
        ("tests/engine/metadata/test_bootstrap_failures.py",),
    ),
)
