"""Lists the rows that other tests show: real Kafka nodes that die, whole suites, and insides. The page says where."""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["ELSEWHERE", "Elsewhere"]


class Elsewhere(NamedTuple):
    """Names one such row, of ours alone.

    Attributes:
        faults: by their names in `tests/tools/chaos/faults.py`.
        sessions: of nox.
        tests: their functions, each with its file below `tests/`.
    """

    number: int
    name: str
    expected: str
    sessions: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    case: str = ""
    tests: tuple[str, ...] = ()

    @property
    def where(self) -> str:
        """Return the words for the page."""
        if self.tests:
            files = dict.fromkeys(test.partition("::")[0] for test in self.tests)
            return f"tests: {', '.join(f'`tests/{file}`' for file in files)}"
        sessions = ", ".join(f"`nox -s {session}`" for session in self.sessions)
        return f"{'real: ' if self.faults else 'suites: '}{sessions}{': ' if self.faults else ''}{', '.join(self.faults)}"


_CHAOS: Final = ("chaos",)
ELSEWHERE: Final = (
    Elsewhere(
        26,
        "the leader is killed with -9, restarted in good order, killed five times in a row",
        "nothing acknowledged is lost, twice or out of order",
        _CHAOS,
        ("leader-killed", "leader-restarted", "leader-bounced"),
    ),
    Elsewhere(29, "three nodes are restarted one after the other, with traffic", "no failure", _CHAOS, ("rolling-restart",)),
    Elsewhere(
        30,
        "the leader is stopped for 20 s, then goes on (SIGSTOP, SIGCONT)",
        "records move to the new leader, none twice",
        _CHAOS,
        ("leader-paused",),
    ),
    Elsewhere(
        91,
        "Python 3.11 to 3.15; asyncio's debug mode, eager tasks, uvloop",
        "the same suite is green",
        ("unit", "pythons", "loops"),
    ),
    Elsewhere(
        92,
        "the password is wrong",
        "`start(wait=False)` gets through by itself; 6 connections before at most",
        case="for 5 s, then right",
        tests=(
            "scenarios/test_sasl.py::test_wrong_for_five_seconds",
            "net/test_sasl_login.py::test_dials_are_few_while_the_credentials_are_refused",
        ),
    ),
    Elsewhere(
        96,
        "names of certificates",
        "refused, or taken; never unchecked",
        case="an address, a dot at the end, capitals, a canonical name, an empty name",
        tests=(
            "net/test_tls.py::test_names",
            "net/test_tls.py::test_the_server_name",
            "net/test_tls.py::test_the_name_of_a_bootstrap_address_is_as_written_or_canonical",
            "net/test_tls.py::test_an_empty_name_is_refused",
        ),
    ),
    Elsewhere(
        98,
        "old and other versions of TLS",
        "the connection ends, the records go again",
        case="bytes of SSLv3, and a renegotiation in TLS 1.2",
        tests=("scenarios/test_tls_peers.py::test_bytes_of_sslv3", "scenarios/test_tls_peers.py::test_a_renegotiation_of_tls_1_2"),
    ),
    Elsewhere(
        99,
        "the broker refuses the client's certificate",
        "the error names the possibility; a key of another certificate is an error of the options",
        case="an alert that a reset overtakes, the key of another certificate",
        tests=(
            "net/test_tls_errors.py::test_a_reset_after_the_handshake_names_the_possibility",
            "net/test_tls_contexts.py::test_what_cannot_be_used",
        ),
    ),
    Elsewhere(
        100,
        "a token function raises, hangs, gives no token, or one that is no good",
        "bounded; the old token is used until it ends; its text is never quoted",
        tests=(
            "net/test_token_keeper.py::test_fault_100_the_old_token_is_used_while_none_comes",
            "net/test_token_keeper.py::test_fault_100_a_source_that_gives_none",
            "net/test_token_keeper.py::test_fault_100_a_function_that_hangs_is_left_alone",
            "net/test_token_sources.py::test_fault_100_what_a_function_raises_is_not_quoted",
            "sasl/test_oauthbearer.py::test_fault_100_a_token_that_cannot_be_sent",
            "scenarios/test_tokens.py::test_fault_100_no_token_for_30_s_fails_no_record",
        ),
    ),
    Elsewhere(
        102,
        "certificate, key or CA change on disk; one of a pair first; a file is gone; a link is swapped",
        "the next connection has them; the former ones until they fit together, with one warning",
        tests=(
            "scenarios/test_tls.py::test_rotated_certificates_take_effect_at_the_next_dial",
            "net/test_tls_contexts.py::test_rotated_files_are_in_the_next_context",
            "net/test_tls_contexts.py::test_a_swapped_symlink_is_a_change",
        ),
    ),
    Elsewhere(
        105,
        "the principal changes at a renewal",
        "one new connection at once, no failure is counted, the records go again",
        tests=(
            "scenarios/test_sasl.py::test_a_principal_that_changes",
            "net/test_reauthentication.py::test_another_principal_gets_a_new_connection_at_once",
        ),
    ),
    Elsewhere(
        108,
        "the connection is cut while it is set up",
        "tried again, and nothing is left",
        case="behind each byte of a TLS handshake, and at each answer of SASL",
        tests=(
            "net/test_tls.py::test_each_cut_of_the_handshake_ends_it",
            "net/test_sasl_login.py::test_a_connection_that_is_cut_at_each_answer",
        ),
    ),
    Elsewhere(
        110,
        "TLS ends in mid-life",
        "the text is kept; it goes on; answers are delivered first",
        case="an alert after the handshake of TLS 1.3, a key update, answers before close_notify",
        tests=(
            "net/test_tls.py::test_an_alert_after_the_handshake_keeps_its_text",
            "net/test_tls.py::test_a_peer_that_changes_keys_or_negotiates_anew",
            "net/test_tls.py::test_what_came_before_a_close_notify_is_delivered_first",
        ),
    ),
    Elsewhere(
        111,
        "a token endpoint that refuses, redirects, is silent, or answers no token",
        "host and status alone are told; it is asked again with growing pauses; no redirect is followed",
        tests=(
            "net/test_token_endpoint.py::test_row_111_an_endpoint_that_fails",
            "net/test_token_endpoint.py::test_row_111_an_endpoint_that_does_not_answer",
            "net/test_token_endpoint.py::test_row_111_a_wrong_secret",
            "net/test_token_endpoint.py::test_row_111_nobody",
            "net/test_token_endpoint.py::test_row_111_silence_in_the_handshake",
            "net/test_token_endpoint.py::test_row_111_a_wrong_certificate",
        ),
    ),
    Elsewhere(
        113,
        "the clock is an hour off, or jumps",
        "sessions do not see the wall clock; texts of certificates ask for the clock",
        tests=(
            "scenarios/test_sasl.py::test_a_clock_that_jumps",
            "net/test_reauthentication.py::test_a_clock_that_jumps",
            "net/test_tls_errors.py::test_a_certificate_that_is_not_trusted",
        ),
    ),
    Elsewhere(
        115,
        "an error as a challenge, then error 58",
        "the text of error 58; never taken for success",
        tests=("sasl/test_handshake.py::test_an_error_as_a_challenge_is_never_a_success",),
    ),
    Elsewhere(
        116,
        "Kerberos: no KDC, a KDC that stands still, no ticket, one that expired, no such service",
        "the loop is free, the stop is not delayed; asked again where that may help",
        tests=(
            "integration/test_kerberos_real.py::test_a_kdc_that_is_there_later",
            "integration/test_kerberos_real.py::test_a_kdc_that_stands_still",
            "integration/test_kerberos_real.py::test_no_ticket",
            "integration/test_kerberos_real.py::test_a_ticket_that_expired",
            "integration/test_kerberos_real.py::test_no_such_service",
        ),
    ),
    Elsewhere(
        117,
        "pickle, deepcopy, asdict, JSON, explain(), tracebacks with locals, logs, asyncio's debug mode",
        "no secret anywhere",
        tests=(
            "scenarios/test_hidden_secrets.py::test_a_life_shows_no_secret",
            "test_secret.py::test_a_secret_is_not_shown",
            "sasl/test_scram.py::test_no_secret_is_in_a_traceback_with_locals",
        ),
    ),
)
