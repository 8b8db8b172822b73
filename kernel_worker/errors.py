"""Everything that goes wrong in a worker on purpose, each kind with its own class.

    KernelWorkerError
    ├── ModelError                 the worker cannot serve this model; it does not start
    │   ├── ModelUnknown           no such name, path or embedded package
    │   ├── ModelUnsupported       the architecture or tokenizer does not suit
    │   ├── ModelDamaged           a checksum of the embedded model differs
    │   └── ForeignKernels         a distribution that hijacks the name `kernels` is installed
    ├── StartError                 the worker cannot run here; it does not start
    │   ├── DeviceUnknown          no such device
    │   ├── DeviceFailed           the device cannot run the model
    │   └── AddressInUse           nothing can listen there
    ├── InvalidRequest             the request can never succeed                  INVALID_ARGUMENT
    │   └── WindowExceeded         more positions than the model was trained with
    ├── StateMismatch              a state does not belong to this model or plan  FAILED_PRECONDITION
    ├── LeaseLost                  the segment's KV is not here (any more)        FAILED_PRECONDITION
    ├── WorkerBusy                 too many calls wait already                    RESOURCE_EXHAUSTED
    ├── WorkerDraining             this worker takes no more work                 UNAVAILABLE
    └── CallerGone                 nobody waits for the answer any more           CANCELLED

Messages are one sentence for a user; which status code each class becomes stands in `status.py` alone.
Errors of the cache store are a tree of their own (`cache_store.errors`).
"""

from __future__ import annotations


class KernelWorkerError(Exception):
    """Base of all errors raised on purpose by `kernel_worker`."""


class ModelError(KernelWorkerError):
    """The worker cannot serve the model it was told to serve."""


class ModelUnknown(ModelError):
    """Nothing of that name can be loaded without the network."""


class ModelUnsupported(ModelError):
    """The model or its tokenizer does something that a compressed state cannot hold."""


class ModelDamaged(ModelError):
    """The bytes of the embedded model are not the expected ones."""


class ForeignKernels(ModelError):
    """Another distribution named `kernels` is installed, and transformers would use it as its own."""


class StartError(KernelWorkerError):
    """The worker cannot run where it was told to run."""


class DeviceUnknown(StartError):
    """There is no device of that name."""


class DeviceFailed(StartError):
    """The device is there, but the model does not run on it."""


class AddressInUse(StartError):
    """The address is taken, or is none."""


class InvalidRequest(KernelWorkerError):
    """The request can never succeed, here or elsewhere."""


class WindowExceeded(InvalidRequest):
    """State and new tokens together need more positions than the model was trained with."""


class StateMismatch(KernelWorkerError):
    """A state's shape, dtype or fingerprint is not the one of this model and plan."""


class LeaseLost(KernelWorkerError):
    """The segment's KV is not held here under this lease."""


class WorkerBusy(KernelWorkerError):
    """All compute slots are taken and too many calls wait already."""


class WorkerDraining(KernelWorkerError):
    """The worker was told to stop and takes no more work."""


class CallerGone(KernelWorkerError):
    """The caller cancelled, or its deadline passed, before the work was done."""
