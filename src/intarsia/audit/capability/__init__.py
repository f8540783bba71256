"""The capability study: what a model can do, and whether a fine-tune broke anything."""

from intarsia.audit.capability.study import ITEMS, Capability, CapabilityOptions

__all__ = ["ITEMS", "Capability", "CapabilityOptions"]
