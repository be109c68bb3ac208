"""TRAINWIZ_FAULTS: failures on purpose in the real training code, for the fault campaign and nothing else.

    TRAINWIZ_FAULTS="oom@7:above=3; nan@12; nccl@5:rank=1:once; slow@9:seconds=3; oom@10:during=evaluation"

`KIND@STEP`, the step (counted from 1) in whose forward pass it happens, then options: `rank=N` (all
ranks without it), `above=M` (only while the micro-batch is larger than M rows), `once` (only in the
first attempt that reaches it; noted in the run folder), `during=evaluation|saving`, `seconds=S`.
Kinds: oom (torch.OutOfMemoryError), host_oom (MemoryError), nan (the loss becomes NaN), nccl
(torch.distributed.DistBackendError), error (ValueError), worker (a loader process kills itself),
kill (this process gets SIGKILL), slow, disk (OSError ENOSPC).
"""
