"""A certificate of an authority without its key, as PEM text."""

from tests.support.certificates import Signer

AUTHORITY = Signer.new("registry").certificate.decode()
