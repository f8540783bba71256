"""Uncertainty: which short answers to distrust, from beams instead of random samples."""

from intarsia.uncertainty.beam import Beam
from intarsia.uncertainty.beamuq import BeamUQ, UQResult
from intarsia.uncertainty.candidates import Answer, Candidates, CandidateSet
from intarsia.uncertainty.diverse import DiverseBeam
from intarsia.uncertainty.endpoint import EndpointSample
from intarsia.uncertainty.hybrid import Hybrid
from intarsia.uncertainty.interval import CertifiedInterval, paper_threshold, sufficient_mass
from intarsia.uncertainty.law import Law
from intarsia.uncertainty.sampling import Sample
from intarsia.uncertainty.similarity import NLI, Embedding, Lexical
from intarsia.uncertainty.stored import Stored
from intarsia.uncertainty.trie import TrieSampler

__all__ = [
    "NLI",
    "Answer",
    "Beam",
    "BeamUQ",
    "CandidateSet",
    "Candidates",
    "CertifiedInterval",
    "DiverseBeam",
    "Embedding",
    "EndpointSample",
    "Hybrid",
    "Law",
    "Lexical",
    "Sample",
    "Stored",
    "TrieSampler",
    "UQResult",
    "paper_threshold",
    "sufficient_mass",
]
