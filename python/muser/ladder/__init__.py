"""The ladder: every schedule from one restored state, judged by the hash of the full logits row."""

from .run import PUBLISHED, SCHEMA, Ladder, Step, climb

__all__ = ["PUBLISHED", "SCHEMA", "Ladder", "Step", "climb"]
