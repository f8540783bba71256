"""EndpointTarget: a server that speaks the OpenAI API."""

from intarsia.core.endpoint.target import EndpointTarget
from intarsia.core.endpoint.wire import Limits

__all__ = ["EndpointTarget", "Limits"]
