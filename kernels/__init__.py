"""The mathematics of docexpress: weighted key-value entries, attention over them, how to keep few of them.

Needs torch alone. Knows no service, and never imports transformers. Researchers come for what is named here:
causal attention of long inputs in place of torch's own, and its coresets.
"""

from kernels.causal import express_attention
from kernels.coreset import coreset_attention, express_coreset
from kernels.weighted_kv import WeightedKV

__all__ = ["WeightedKV", "coreset_attention", "express_attention", "express_coreset"]
