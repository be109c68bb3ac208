"""Whether several machines have trained the same weights, of which one of them saves its own."""

from __future__ import annotations

import hashlib

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from trainwiz.core.language import tr
from trainwiz.core.training.shards import forward_needs_all

DIGEST_BYTES = 16


def weights_digest(model: torch.nn.Module) -> str:
    """Of names, types and bytes of all weights that this process holds whole."""
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            digest.update(f"{name} {weight.dtype} {tuple(weight.shape)}".encode())
            digest.update(weight.detach().contiguous().view(-1).view(torch.uint8).cpu().numpy().data)
    return digest.hexdigest()


def compare_weights(model: torch.nn.Module, accelerator: Accelerator) -> bool:
    """Say in the log whether the weights of all processes are the same, bit for bit; every process must call it.

    Nothing is compared where the processes share the weights out. Cards of different kinds may round the optimizer's
    arithmetic differently: then the model that is saved is that of process 0, and its user should know.
    """
    if forward_needs_all(model):
        return True
    digests: list[str] = gather_object([weights_digest(model)])
    apart = [str(rank) for rank, digest in enumerate(digests) if digest != digests[0]]
    if accelerator.is_main_process and not apart:
        print(f"the weights of all {len(digests)} processes are equal ({digests[0]})", flush=True)
    elif accelerator.is_main_process:
        message = tr(
            "The weights of process {ranks} are not those of process 0, which are saved: the machines compute "
            "differently. Look for other cards or other versions on one of them.",
            ranks=", ".join(apart),
        )
        print(message, flush=True)
    return not apart
