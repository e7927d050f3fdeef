"""Messages of proto/keval/v1/tensor.proto. Written by tools/generate."""

from keval.v1 import _descriptors

_descriptors.define("keval/v1/tensor.proto", globals())
