"""Tokens of Amazon MSK's IAM: a request that is signed with credentials of AWS, and sent as a bearer token (OAUTHBEARER).

Amazon's signer (the extra `msk`) finds the credentials and signs. It is imported at the first token, in the thread that fetches it, as its import
takes a third of a second. Its calls may block: the credentials may come from an HTTP service or from STS.
"""

from __future__ import annotations

import re
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from aioproducer.config.secret import Secret
from aioproducer.config.security_options import AWS_MSK_IAM, regions_of
from aioproducer.errors import ConfigError, TokenUnavailable
from aioproducer.sasl.tokens import Token

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aioproducer.config.security_options import SecurityOptions

_PACKAGE: Final = "aws_msk_iam_sasl_signer"
_NO_CREDENTIALS: Final = "AWS has no credentials here: no variables AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, no profile, no role of this machine"
# What an error of the signer or of botocore means, by the name of its class. AttributeError: the signer 1.0.2 asks no credentials for their key.
_MEANINGS: Final = {
    "AttributeError": _NO_CREDENTIALS,
    "NoCredentialsError": _NO_CREDENTIALS,
    "PartialCredentialsError": "AWS has a part of the credentials alone",
    "ProfileNotFound": "there is no such profile of AWS (sasl_aws_profile_name)",
    "ValueError": "AWS has empty credentials",
}
# A code in an answer of STS, such as AccessDenied.
_CODE: Final = re.compile(r"[A-Za-z.]{1,60}")


class MskTokens:
    """Gives tokens that are signed with credentials of AWS.

    Args:
        config: `check_msk` has checked it.
        brokers: the bootstrap addresses, which name the region if no option does.

    Attributes:
        name: names the source in error texts.

    Raises:
        ConfigError: the signer is not installed.
    """

    def __init__(self, config: SecurityOptions, brokers: Iterable[str]) -> None:
        if find_spec(_PACKAGE) is None:
            raise ConfigError(
                f"sasl_mechanism={AWS_MSK_IAM} needs aws-msk-iam-sasl-signer-python: pip install 'aioproducer[msk]'"
            )
        self._config = config
        self._region = config.sasl_aws_region or regions_of(brokers)[0]
        self.name: str = f"the signer of AWS for {self._region}"

    def fetch(self) -> Token:
        """Return a new token, of 15 minutes. It names no principal. The call may block.

        Raises:
            TokenUnavailable: AWS gives no credentials. The text has the class of the error and a code of AWS, nothing else of it.
        """
        try:
            text, ends_ms = self._sign()
            return Token(Secret(text), ends_ms / 1000, "")
        # its text may hold a credential
        except Exception as error:
            raise TokenUnavailable(
                f"{self.name}: {_meaning(error)}", "token", AWS_MSK_IAM
            ) from None

    def _sign(self) -> tuple[str, int]:
        from aws_msk_iam_sasl_signer import MSKAuthTokenProvider as signer

        config, signed = self._config, None
        if config.sasl_aws_role_arn is not None:
            role = _role(
                self._region,
                config.sasl_aws_role_arn,
                config.sasl_aws_role_session_name or signer.DEFAULT_STS_SESSION_NAME,
            )
            signed = signer.generate_auth_token_from_credentials_provider(self._region, role)
        elif config.sasl_aws_profile_name is not None:
            signed = signer.generate_auth_token_from_profile(
                self._region, config.sasl_aws_profile_name
            )
        else:
            signed = signer.generate_auth_token(self._region)
        text, ends_ms = signed
        return text, ends_ms


def _role(region: str, arn: str, session_name: str) -> Any:
    """Return a provider of credentials, which assumes a role by the STS of a region.

    The signer has a function for that, which asks the STS of us-east-1: it knows no role of China, and needs AWS_REGION elsewhere.
    """
    from botocore.credentials import CredentialProvider, Credentials
    from botocore.session import Session

    class AssumedRole(CredentialProvider):  # type: ignore[misc]
        def load(self) -> Any:
            client = Session().create_client("sts", region_name=region)
            given = client.assume_role(RoleArn=arn, RoleSessionName=session_name)["Credentials"]
            return Credentials(
                given["AccessKeyId"], given["SecretAccessKey"], given["SessionToken"]
            )

    return AssumedRole()


def _meaning(error: Exception) -> str:
    kind = type(error).__name__
    answer: Any = getattr(error, "response", None)
    code = answer.get("Error", {}).get("Code") if isinstance(answer, dict) else None
    if isinstance(code, str) and _CODE.fullmatch(code):
        return f"AWS answers {code} ({kind})"
    return f"{_MEANINGS[kind]} ({kind})" if kind in _MEANINGS else f"it raised {kind}"
