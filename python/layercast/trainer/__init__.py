"""The trainer's side: between a PyTorch model and the tensors that a publisher takes. Imported when a torch module or
tensor was seen, since it imports torch."""

from layercast.trainer.config import config
from layercast.trainer.module import gathered, pieces_of_module, pieces_of_state_dict
from layercast.trainer.piece import Piece, Spec
from layercast.trainer.pieces import Pieces
from layercast.trainer.source import Source, endpoints_of_all, source_of, sources_of_adapters

__all__ = [
    "Piece",
    "Pieces",
    "Source",
    "Spec",
    "config",
    "endpoints_of_all",
    "gathered",
    "pieces_of_module",
    "pieces_of_state_dict",
    "source_of",
    "sources_of_adapters",
]
