"""Messages of proto/keval/v1/linear_logp.proto. Written by tools/generate."""

from keval.v1 import _descriptors

_descriptors.define("keval/v1/linear_logp.proto", globals())
