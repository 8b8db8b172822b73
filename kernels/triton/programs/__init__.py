"""The programs themselves: what runs on a GPU. Their callers are the modules of `kernels.triton`."""
