"""Triton programs for GPUs: weighted attention, decode, halving, gathering of the survivors.

The plain torch versions they are tested against are `kernels.reference` and `kernels.halving_reference`. What
these programs take is said by `support`; for everything else `kernels.dispatch` stays with torch.
"""
