"""What frameworks and systems really say when a training ends, and the cause that it means.

Message formats as torch, accelerate, transformers, datasets, DeepSpeed, NCCL, gloo, Linux, Slurm and shells
write them; paths, numbers and names of hosts are made up.
"""

TRACE = 'Traceback (most recent call last):\n  File "/w/train.py", line 12, in <module>\n    main()\n'

SAYINGS: dict[str, tuple[str, str]] = {
    # cuda_oom
    "torch 2 OOM": ("cuda_oom", TRACE + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 9.77 GiB of which 1.20 GiB is free."),
    "torch 1 OOM": ("cuda_oom", TRACE + "RuntimeError: CUDA out of memory. Tried to allocate 512.00 MiB (GPU 0; 10.76 GiB total capacity; 9.21 GiB already allocated; 214.62 MiB free; 9.60 GiB reserved in total by PyTorch)"),
    "driver OOM": ("cuda_oom", TRACE + "RuntimeError: CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect."),
    "cublas": ("cuda_oom", TRACE + "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    "MPS": ("cuda_oom", TRACE + "RuntimeError: MPS backend out of memory (MPS allocated: 17.22 GB, other allocations: 612.35 MB, max allowed: 18.13 GB). Tried to allocate 256.00 MB on private pool."),
    "ROCm": ("cuda_oom", TRACE + "torch.cuda.OutOfMemoryError: HIP out of memory. Tried to allocate 1.50 GiB (GPU 0; 15.98 GiB total capacity)"),
    "async allocator": ("cuda_oom", TRACE + "torch.cuda.OutOfMemoryError: Allocation on device 0 would exceed allowed memory. (out of memory)"),
    "bitsandbytes": ("cuda_oom", "Error out of memory at line 380 in file /mmfs1/gscratch/bitsandbytes/csrc/pythonInterface.c"),
    "NCCL OOM": ("cuda_oom", "node1:77:90 [0] include/alloc.h:48 NCCL WARN Cuda failure 2 'out of memory'"),
    # host_oom
    "kernel": ("host_oom", "[ 7324.123456] Out of memory: Killed process 21043 (python) total-vm:71283840kB, anon-rss:63423412kB"),
    "kernel cgroup": ("host_oom", "[ 1201.5] Memory cgroup out of memory: Killed process 431 (pt_main_thread) total-vm:12000kB"),
    "slurm": ("host_oom", "slurmstepd: error: Detected 1 oom_kill event in StepId=551.0. Some of the step tasks have been OOM Killed."),
    "slurm limit": ("host_oom", "slurmstepd: error: Job 551 exceeded memory limit (66060288 > 62914560), being killed"),
    "kubernetes": ("host_oom", "Last State: Terminated\n  Reason: OOMKilled\n  Exit Code: 137"),
    "MemoryError": ("host_oom", TRACE + "MemoryError"),
    "numpy": ("host_oom", TRACE + "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 37.3 GiB for an array with shape (100000, 50000) and data type float64"),
    "torch CPU": ("host_oom", TRACE + "RuntimeError: [enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 68719476736 bytes. Error code 12 (Cannot allocate memory)"),
    "torch CPU Windows": ("host_oom", TRACE + "RuntimeError: [enforce fail at alloc_cpu.cpp:80] data. DefaultCPUAllocator: not enough memory: you tried to allocate 8589934592 bytes."),
    "fork": ("host_oom", TRACE + "OSError: [Errno 12] Cannot allocate memory"),
    "bad_alloc": ("host_oom", "terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc\nAborted (core dumped)"),
    "arrow": ("host_oom", TRACE + "pyarrow.lib.ArrowMemoryError: malloc of size 8388608000 failed"),
    "Windows, Chinese": ("host_oom", TRACE + "OSError: [WinError 1455] 页面文件太小，无法完成操作。 Error loading \"torch_cuda.dll\""),
    "shell": ("host_oom", "run.sh: line 12: 48211 Killed                  python train.py --config a.yaml"),
    "shell, Chinese": ("host_oom", " 12%|█▏        | 12/100 [00:10<01:20,  1.1it/s]\n已杀死"),
    "exit 137": ("host_oom", "subprocess.CalledProcessError: Command '['python', 'train.py']' returned non-zero exit status 137."),
    "accelerate -9": ("host_oom", TRACE + "subprocess.CalledProcessError: Command '['/opt/bin/python', 'train.py']' died with <Signals.SIGKILL: 9>."),
    "deepspeed -9": ("host_oom", "[2024-05-01 10:11:12,013] [INFO] [launch.py:316:sigkill_handler] Killing subprocess 4411\n[2024-05-01 10:11:12,201] [ERROR] [launch.py:322:sigkill_handler] ['/opt/bin/python', '-u', 'train.py', '--local_rank=0'] exits with return code = -9"),
    # disk_full
    "ENOSPC": ("disk_full", TRACE + "OSError: [Errno 28] No space left on device: 'out/checkpoint-400/optimizer.pt'"),
    "zip writer": ("disk_full", TRACE + "RuntimeError: [enforce fail at inline_container.cc:603] . unexpected pos 640 vs 534"),
    "safetensors": ("disk_full", TRACE + 'safetensors_rust.SafetensorError: Error while serializing: I/O error: No space left on device (os error 28)'),
    "safetensors old": ("disk_full", TRACE + 'safetensors_rust.SafetensorError: Error while serializing: IoError(Os { code: 28, kind: StorageFull, message: "No space left on device" })'),
    "quota": ("disk_full", TRACE + "OSError: [Errno 122] Disk quota exceeded"),
    "datasets": ("disk_full", TRACE + "OSError: Not enough disk space. Needed: 41.07 GiB (download: 12.97 GiB, generated: 28.10 GiB, post-processed: Unknown size)"),
    "file size limit": ("disk_full", TRACE + "OSError: [Errno 27] File too large"),
    # shared_memory
    "bus error": ("shared_memory", "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).\n" + TRACE + "RuntimeError: DataLoader worker (pid 3110) is killed by signal: Bus error. It is possible that dataloader's workers are out of shared memory. Please try to raise your shared memory limit."),
    "torch segment": ("shared_memory", TRACE + "RuntimeError: unable to write to file </torch_1204_3921>"),
    "open": ("shared_memory", TRACE + "RuntimeError: unable to open shared memory object </torch_29919_1396182366> in read-write mode: Too many open files (24)"),
    "mmap": ("shared_memory", TRACE + "RuntimeError: unable to mmap 4096 bytes from file </torch_201_77_0>: Cannot allocate memory (12)"),
    "NCCL shm": ("shared_memory", "h:61:88 [1] misc/shmutils.cc:72 NCCL WARN Error: failed to extend /dev/shm/nccl-Yb3kXm to 33030532 bytes, error: No space left on device (28)"),
    "ancdata": ("shared_memory", TRACE + "RuntimeError: received 0 items of ancdata"),
    # nccl
    "gloo timeout": ("nccl_timeout", TRACE + "RuntimeError: [../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation to complete"),
    "barrier": ("nccl_timeout", TRACE + "RuntimeError: Rank 1 successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 0. Please check rank 0 logs for faulty rank.\nRank 0 timed out in monitoredBarrier after 30000 ms."),
    "store": ("nccl_timeout", TRACE + "torch.distributed.DistStoreError: wait timeout after 300000ms, keys: /default_pg/0//cuda//0"),
    "clients": ("nccl_timeout", TRACE + "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 1/2 clients joined."),
    "heartbeat": ("nccl_timeout", "[rank2]:[E806 11:02:11.102 ProcessGroupNCCL.cpp:1375] [PG 0 (default_pg) Rank 2] ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress in monitoring enqueued collectives."),
    "unhandled cuda": ("nccl_error", TRACE + "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1970, unhandled cuda error (run with NCCL_DEBUG=INFO for details), NCCL version 2.20.5\nncclUnhandledCudaError: Call to CUDA function failed."),
    "unhandled system": ("nccl_error", TRACE + "RuntimeError: NCCL error in: /pytorch/torch/lib/c10d/ProcessGroupNCCL.cpp:784, unhandled system error, NCCL version 2.7.8"),
    "duplicate": ("nccl_error", TRACE + "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:219, invalid usage, NCCL version 2.19.3\nncclInvalidUsage: This usually reflects invalid usage of NCCL library.\nLast error:\nDuplicate GPU detected : rank 0 and rank 1 both on CUDA device 1000"),
    "gloo reset": ("nccl_error", TRACE + "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:41553"),
    "recv": ("nccl_error", TRACE + "torch.distributed.DistNetworkError: failed to recv, got 0 bytes"),
    # bf16, attention
    "transformers bf16": ("bf16_unsupported", TRACE + "ValueError: Your setup doesn't support bf16/gpu."),
    "accelerate bf16": ("bf16_unsupported", TRACE + "ValueError: bf16 mixed precision requires PyTorch >= 1.10 and a supported device."),
    "deepspeed bf16": ("bf16_unsupported", TRACE + "ValueError: Type bf16 is not supported on your device."),
    "autocast bf16": ("bf16_unsupported", TRACE + "RuntimeError: Current CUDA Device does not support bfloat16. Please switch dtype to float16."),
    "ptxas bf16": ("bf16_unsupported", "ptxas /tmp/tmpw, line 84; error   : Feature '.bf16' requires .target sm_80 or higher"),
    "vllm bf16": ("bf16_unsupported", TRACE + "ValueError: Bfloat16 is only supported on GPUs with compute capability of at least 8.0. Your Tesla T4 GPU has compute capability 7.5."),
    "transformers 4 flash": ("flash_attention_missing", TRACE + "ImportError: FlashAttention2 has been toggled on, but it cannot be used due to the following error: the package flash_attn seems to be not installed. Please refer to the documentation"),
    "transformers 5 flash": ("flash_attention_missing", TRACE + "ImportError: FlashAttention2 has been toggled on, but it cannot be used due to the following error: the package for FlashAttention2 doesn't seem to be installed."),
    "flash module": ("flash_attention_missing", TRACE + "ModuleNotFoundError: No module named 'flash_attn'"),
    "flash old card": ("flash_attention_missing", TRACE + "RuntimeError: FlashAttention only supports Ampere GPUs or newer."),
    "flash model": ("flash_attention_missing", TRACE + "ValueError: EsmForMaskedLM does not support Flash Attention 2.0 yet. Please request to add support where the model is hosted"),
    "flash symbol": ("flash_attention_missing", TRACE + "ImportError: /opt/lib/python3.10/site-packages/flash_attn_2_cuda.cpython-310-x86_64-linux-gnu.so: undefined symbol: _ZN3c104cuda9SetDeviceEi"),
    # workers
    "worker killed": ("dataloader_worker_killed", TRACE + "RuntimeError: DataLoader worker (pid 70351) is killed by signal: Killed."),
    "worker exited": ("dataloader_worker_killed", TRACE + "RuntimeError: DataLoader worker (pid(s) 2042, 2043) exited unexpectedly"),
    "map": ("dataloader_worker_killed", TRACE + "RuntimeError: One of the subprocesses has abruptly died during map operation.To debug the error, disable multiprocessing."),
    # deepspeed
    "hf mismatch": ("deepspeed_mismatch", TRACE + "ValueError: Please correct the following DeepSpeed config values that mismatch TrainingArguments values:\n- ds train_micro_batch_size_per_gpu=4 vs hf per_device_train_batch_size=8"),
    "batch equation": ("deepspeed_mismatch", TRACE + "AssertionError: Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu * gradient_acc_step * world_size 16 != 4 * 1 * 1"),
    "optimizer twice": ("deepspeed_mismatch", TRACE + "ValueError: You cannot specify an optimizer in the config file and in the code at the same time. Please remove the optimizer from the config file or create `accelerate.utils.DummyOptim` in the code."),
    "world size": ("deepspeed_mismatch", TRACE + "deepspeed.runtime.zero.utils.ZeRORuntimeException: The checkpoint being loaded used a DP world size of 4 but the current world size is 2. Automatic adjustment of ZeRO's optimizer state partitioning with a new world size is not currently supported."),
    # ports
    "EADDRINUSE": ("port_in_use", TRACE + "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use"),
    "accelerate port": ("port_in_use", TRACE + "ConnectionError: Tried to launch distributed communication on port `29500`, but another process is utilizing it. Please specify a different port (such as using the `--main_process_port` flag"),
    "OSError 98": ("port_in_use", TRACE + "OSError: [Errno 98] Address already in use"),
    # nan
    "nan printed": ("nan_loss", "{'loss': 2.31, 'grad_norm': 1.2, 'epoch': 0.1}\n{'loss': nan, 'grad_norm': nan, 'epoch': 0.2}\n{'loss': nan, 'grad_norm': nan, 'epoch': 0.3}\n"),
    "trainer zero": ("nan_loss", "{'loss': 2.31, 'grad_norm': 1.2, 'epoch': 0.1}\n{'loss': 0.0, 'grad_norm': nan, 'learning_rate': 2e-05, 'epoch': 0.2}\n"),
    "stopped": ("nan_loss", "Loss is nan, stopping training\n" + TRACE + "ValueError: Loss is nan, stopping training"),
    "anomaly": ("nan_loss", TRACE + "RuntimeError: Function 'MulBackward0' returned nan values in its 0th output."),
    "sampling": ("nan_loss", TRACE + "RuntimeError: probability tensor contains either `inf`, `nan` or element < 0"),
    "deepspeed scale": ("nan_loss", TRACE + "Exception: Current loss scale already at minimum - cannot decrease scale anymore. Exiting run."),
    # files
    "ENOENT": ("missing_file", TRACE + "FileNotFoundError: [Errno 2] No such file or directory: 'data/train.jsonl'"),
    "script": ("missing_file", "python: can't open file '/w/train.py': [Errno 2] No such file or directory"),
    "hub": ("missing_file", TRACE + "OSError: my/model is not a local folder and is not a valid model identifier listed on 'https://huggingface.co/models'"),
    "datasets script": ("missing_file", TRACE + "FileNotFoundError: Couldn't find any data file at /w/corpus."),
    "tokenizer": ("missing_file", TRACE + "OSError: Can't load tokenizer for 'out/final'. If you were trying to load it from 'https://huggingface.co/models', make sure you don't have a local directory with the same name."),
    # settings
    "strategy": ("config_mismatch", TRACE + "ValueError: --load_best_model_at_end requires the save and eval strategy to match, but found\n- Evaluation strategy: no\n- Save strategy: steps"),
    "multiple": ("config_mismatch", TRACE + "ValueError: --load_best_model_at_end requires the saving steps to be a round multiple of the evaluation steps, but found 500, which is not a round multiple of 300."),
    "argument": ("config_mismatch", TRACE + "TypeError: TrainingArguments.__init__() got an unexpected keyword argument 'evaluation_strategy'"),
    "argparse": ("config_mismatch", "usage: train.py [-h] [--model MODEL]\ntrain.py: error: unrecognized arguments: --modle gpt2"),
    "state_dict": ("config_mismatch", TRACE + "RuntimeError: Error(s) in loading state_dict for BertForMaskedLM:\n\tsize mismatch for bert.embeddings.word_embeddings.weight"),
    "fp16 on CPU": ("config_mismatch", TRACE + "ValueError: fp16 mixed precision requires a GPU (not 'cpu')."),
    # cards
    "fallen": ("gpu_lost", "[12345.6] NVRM: Xid (PCI:0000:65:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."),
    "lost": ("gpu_lost", TRACE + "pynvml.NVMLError_GpuIsLost: GPU is lost"),
    "ECC": ("gpu_lost", TRACE + "RuntimeError: CUDA error: uncorrectable ECC error encountered"),
    # people
    "Ctrl-C": ("user_stop", " 10%|█         | 100/1000 [01:00<09:00,  1.7it/s]" + "\n" + TRACE + "KeyboardInterrupt"),
    "scancel": ("user_stop", "slurmstepd: error: *** JOB 551 ON node7 CANCELLED AT 2024-03-02T21:18:04 ***"),
    # code
    "ValueError": ("python_error", TRACE + "ValueError: Expected input batch_size (32) to match target batch_size (31)."),
    "assert in CUDA": ("python_error", TRACE + "RuntimeError: CUDA error: device-side assert triggered"),
    "triton": ("python_error", TRACE + "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 147456, Hardware limit: 101376. Reducing block sizes or `num_stages` may help."),
    "download": ("python_error", TRACE + "requests.exceptions.ConnectionError: ('Connection aborted.', ConnectionResetError(104, 'Connection reset by peer'))"),
    "module": ("python_error", TRACE + "ModuleNotFoundError: No module named 'peft'"),
    # no cause of the list
    "segfault": ("unknown", "Fatal Python error: Segmentation fault\n\nThread 0x00007f (most recent call first):\n  File \"a.py\", line 3 in f\nSegmentation fault (core dumped)"),
    "slurm time": ("unknown", "slurmstepd: error: *** JOB 551 ON node7 CANCELLED AT 2024-03-02T21:18:04 DUE TO TIME LIMIT ***"),
    "SIGTERM": ("unknown", TRACE + "torch.distributed.elastic.multiprocessing.api.SignalException: Process 4101 got signal: 15"),
    "nothing": ("unknown", "Loading the model\nTokenising\nGoodbye"),
}  # fmt: skip
"""Name -> (cause, text of the log)."""

HARMLESS: dict[str, str] = {
    "words in metrics": "{'loss': 1.2, 'eval_error': 0.3, 'epoch': 1.0}\n{'loss': 1.1, 'error_rate': 0.2, 'epoch': 2.0}\n",
    "timeout in arguments": "TrainingArguments(\nddp_timeout=1800,\nnccl_timeout=600,\nddp_backend=nccl,\n)\nSetting timeout to 600 s\n",
    "nan counted": "rows with nan: 0\nchecked for NaN or Inf: none\nnan_to_num is on\nlogging_nan_inf_filter=True,\n",
    "advice on memory": "If you get CUDA out of memory, lower the batch size.\nTip: MemoryError can be avoided with streaming.\n",
    "flash warning": "You are attempting to use Flash Attention 2.0 without specifying a torch dtype.\n`flash-attention` package not found, consider installing for better performance: No module named 'flash_attn'.\n",
    "bf16 note": "bf16 is supported on this device\nUsing bf16: True. This GPU does support bfloat16.\n",
    "future warning": "/opt/lib/a.py:5: FutureWarning: `evaluation_strategy` is deprecated, an error will be raised in 4.46\n  warnings.warn(\n",
    "user warning": "UserWarning: DataLoader worker processes: suggested max number of worker is 4, error prone\n",
    "socket warning": "[W1121 14:02:11.1 socket.cpp:697] [c10d] The client socket cannot be initialized to connect to [localhost]:29500 (errno: 97 - Address family not supported by protocol).\n",
    "destroy warning": "[rank0]:[W1121 10:00:00.1 ProcessGroupNCCL.cpp:1250] Warning: WARNING: process group has NOT been destroyed before we destruct ProcessGroupNCCL.\n",
    "zero errors": "0 errors, 0 warnings\nerror: 0.031\nTest error: 0.12\n",
    "killed in text": "Sample: the knight was Killed by the dragon, no space left in the cave\n",
    "retries": "Retrying after a timeout: connection reset by peer, attempt 2 of 5\nDownloaded in 3 s\n",
    "stopped early": "Early stopping: patience 3, signal: 0.2\n",
    "shm free": "/dev/shm: 62 GiB free\nshared memory: ok\n",
    "port said": "Listening on port 29500; address 0.0.0.0 already chosen\n",
    "NCCL info": "node:1:1 [0] NCCL INFO Using network Socket\nnode:1:1 [0] NCCL INFO comm 0x1 rank 0 nranks 2 - Init COMPLETE\n",
    "tensorboard": "TensorBoard: NaN or Inf found in input tensor.\n",
    "source": "def f():\n    try:\n        g()\n    except FileNotFoundError:\n        raise ValueError('CUDA out of memory')\n",
    "chinese": "开始训练，没有错误\n学习率 0.001，超时设置为 600 秒\n内存充足\n",
    "ignored": "Exception ignored in: <function Pool.__del__ at 0x7f>\nTraceback (most recent call last):\n  File \"pool.py\", line 2, in __del__\nOSError: [Errno 9] Bad file descriptor\n",
    "xid in a hash": "commit 79xid48 of the model; gpu is last in the list\n",
}  # fmt: skip
"""Texts in which the words of a failure stand and nothing failed."""
