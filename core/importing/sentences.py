"""What an import says: findings and refusals by their codes, with a word behind a dot where a code has several."""

from __future__ import annotations

from collections.abc import Mapping

SENTENCES: Mapping[str, str] = {
    "assumed_meaning": "{name} is read as the micro-batch (the sequences that one process computes at once); if the "
    "script means all processes together, set batch.micro_batch_size.",
    "bad_value": "{name} cannot be {value}; it is ignored.",
    "bad_value.is_left_out": "{message} It is ignored.",
    "bad_value.no_such_stage": "{file}: ZeRO has no stage {value}; use 1, 2 or 3.",
    "broken_file.json": "{file} is not valid JSON ({reason}).",
    "broken_file.json_at": "{file}, line {line}, column {column}: this is not valid JSON ({reason}).",
    "broken_file.json_ends": "{file} ends before its JSON is complete (line {line}); use the whole file.",
    "broken_file.python": "{file} cannot be parsed as Python.",
    "broken_file.python_at": "{file}, line {line}: this is not valid Python ({reason}).",
    "broken_file.yaml_at": "{file}, line {line}: this is not valid YAML ({reason}).",
    "changed_later": "{name} is changed after it is set, and only running the script would show the result; it is "
    "ignored, so set the value you want.",
    "contradiction.both_halves": "{file}: {first} and {second} are both enabled, which DeepSpeed rejects; choose one: "
    "--precision bf16 or --precision fp16. Neither is used.",
    "contradiction.both_on": "fp16 and bf16 are both enabled, which transformers rejects; the plan chooses the "
    "precision.",
    "contradiction.contradicts": "{place} sets {total} sequences per step, but micro-batch {micro} x accumulation "
    "{accumulation} x {world} processes is {product}; {product} is used.",
    "contradiction.needs_stage_3": "{file}: {name} requires stage 3, but the stage is {stage}; the parameters stay on "
    "the GPU.",
    "contradiction.no_multiple": "{file}: train_batch_size {total} is not a multiple of "
    "train_micro_batch_size_per_gpu {micro} x gradient_accumulation_steps {accumulation}, so it is wrong for any "
    "number of GPUs; micro-batch and gradient accumulation are used.",
    "contradiction.one_process": "{file}: distributed_type NO starts one process, so num_processes {count} has no "
    "effect; {count} processes need MULTI_GPU. One process is used.",
    "contradiction.scheduler_wins": "{file}: optimizer.params.lr is {other} and scheduler.params.warmup_max_lr is "
    "{peak}; the scheduler sets the learning rate at every step, so {peak} is used.",
    "contradiction.twice": "{file}: `{key}` appears on line {first} and again on line {second}; the last one is used.",
    "contradiction.two_places": "{place} sets {key} to {value}, but {other_place} sets it to {other}; {value} is used.",
    "contradiction.two_values": "{first} and {second} are the same setting with two values; {counts} takes effect. "
    "Keep one.",
    "contradiction.unequal": "{file}: {processes} processes cannot be split evenly across {nodes} machines; make "
    "num_processes a multiple of num_machines.",
    "cut_off": "The command on line {line} is incomplete; use the whole command.",
    "cuts_nothing": "{name}: no row is truncated there; this run truncates at batch.sequence_length, so set the max "
    "length.",
    "data_parallel": "{file}: distributed_type NO starts one process on {count} GPUs, where the Trainer wraps the "
    "model in DataParallel: slower than DDP, and a step uses {count} times the sequences of one GPU. trainwiz starts "
    "one process per GPU instead.",
    "data_parallel.each_its_own": "{said} trainwiz starts one process per GPU instead.",
    "data_parallel.one_wraps": "When started with plain python on {gpus} GPUs, the Trainer wraps the model in "
    "DataParallel: one process, slower than DDP.",
    "data_parallel.one_wraps_batch": "When started with plain python on {gpus} GPUs, the Trainer wraps the model in "
    "DataParallel: one process, slower than DDP, and a step uses {window} x {gpus} = {total} sequences, not {window}.",
    "data_parallel.wraps": "When started with plain python on several GPUs, the Trainer wraps the model in "
    "DataParallel: one process, slower than DDP.",
    "data_parallel.wraps_batch": "When started with plain python on several GPUs, the Trainer wraps the model in "
    "DataParallel: one process, slower than DDP, and a step uses {window} x GPUs sequences ({four} with 4), not "
    "{window}.",
    "follows.any_number": "The number of GPUs is not specified; a plan keeps micro-batch x accumulation = {window} "
    "sequences per step on any number of GPUs, unless --target-samples sets another value.",
    "follows.kept": "A step uses micro-batch x accumulation {window} x {world} processes = {total} sequences; a plan "
    "keeps this number on other GPUs (batch.target_samples).",
    "follows.so_many": "{place}: {total} sequences per step are micro-batch x accumulation {window} x {world} "
    "processes, so engine.processes is {world}.",
    "from_command_line": "Some values come from the command line (line {line}): the command that starts the script "
    "sets them.",
    "library_defaults": "Unset settings use the defaults of {program}: {said}.",
    "misplaced.misplaced_here": "{file}: `{name}` is inside zero_optimization, where DeepSpeed rejects it; move it up "
    "one level. It is not imported ({where}).",
    "missing_data": "No data is specified; set it with --dataset FILE.",
    "missing_file": "{file} refers to {what} {path}, which was not found; its settings are missing, so import it too.",
    "missing_file.left_out": "{file} refers to {what} {path}, which was skipped.",
    "missing_model": "No model is specified; a plan uses {default} until --model sets one.",
    "missing_setting": "{file}: zero_optimization has no stage; DeepSpeed then uses 0, which shards nothing.",
    "no_such_path": "{file} is neither a file nor a launch command.",
    "not_importable.among_other_text": "{file} contains commands among other text: paste only the one command or the "
    "settings.",
    "not_importable.empty": "{file} is empty.",
    "not_importable.empty_argument": "An argument is empty; specify a file, or a launch command in quotes.",
    "not_importable.from_command": "{file} reads its arguments from the command line (line {line}); import the "
    "command that starts it.",
    "not_importable.kinds": "{file} cannot be imported. Supported kinds are Trainer arguments (Python, YAML, JSON), "
    "an accelerate file, a DeepSpeed JSON and a launch command.",
    "not_importable.log": "{file} is the log of a past training, not its settings; view it with: trainwiz monitor FILE",
    "not_importable.model": "{file} describes a model, not a training; use it in a plan with: trainwiz plan --model "
    "FILE",
    "not_importable.no_launch": "{file} does not start a training ({said}); expected a command with accelerate "
    "launch, torchrun, deepspeed or python.",
    "not_importable.no_script": "{file}: the {program} command on line {line} contains no script; use the whole "
    "command.",
    "not_importable.no_settings": "{file} contains no settings: `key: value` pairs are expected.",
    "not_importable.no_such_type": "{file}, line {line}: accelerate has no distributed_type {value}; use NO, "
    "MULTI_GPU, FSDP, DEEPSPEED or another valid type.",
    "not_importable.no_training_called": "{file} calls neither TrainingArguments nor anything else that configures a "
    "training.",
    "not_importable.no_utf8": "{file} is not text (byte {start} is not UTF-8).",
    "not_importable.null_bytes": "{file} is not text: it contains null bytes.",
    "not_importable.only_a_part": "{file} has no `distributed_type`, which accelerate requires: the file is "
    "incomplete. Use the whole file, or create one with: accelerate config",
    "not_importable.profile": "{file} is already a trainwiz profile; use it with: trainwiz plan --profile FILE",
    "not_importable.run": "{file} is the record of a trainwiz run; resume the run with: trainwiz runs resume RUN",
    "not_importable.sagemaker": "{file} trains on Amazon SageMaker, which trainwiz does not support; create a file "
    "for the training machine with: accelerate config",
    "not_importable.too_large": "{file} is larger than {size} MiB; settings and scripts are smaller.",
    "not_importable.too_long": "{file} is too long for a settings file.",
    "not_offered.logarithm": "{file}: DeepSpeed warms up logarithmically unless warmup_type is linear; trainwiz warms "
    "up linearly.",
    "not_offered.no_fp8": "{file}: trainwiz does not support FP8; it uses bf16, in which accelerate computes "
    "everything that is not FP8.",
    "not_offered.no_megatron": "{file}: trainwiz has no Megatron-LM engine; the plan decides how the processes share "
    "the work, and splits neither layers nor sequences.",
    "not_offered.no_nvme": "{file}: trainwiz cannot offload to {value}; the plan shows whether everything fits on the "
    "GPU. If not, use --offload.",
    "not_offered.no_optimizer": "{file}: trainwiz has no optimizer {name}; the plan uses AdamW, which may need a "
    "different learning rate.",
    "not_offered.no_scheduler": "{file}: trainwiz has no scheduler {name}; use linear, cosine, constant or "
    "polynomial: --set training.schedule=cosine",
    "not_offered.shards_less": "{file}: {name} {value} keeps more on each GPU than trainwiz, which shards everything "
    "across all GPUs; the closest match is: --strategy zero2",
    "nothing_mapped": "Nothing in {file} applies to a run; the profile contains the defaults of a plan.",
    "other_targets": "lora_target_modules is not set: PEFT then uses its own table, q_proj and v_proj for most "
    "models; a plan targets all linear layers (peft.targets).",
    "other_template": "{name}: trainwiz does not know the template {value}; the model's own template is used if it "
    "has one.",
    "other_training": "This trains {what}, which trainwiz does not support; the settings are kept to plan its size "
    "and speed.",
    "own_template": "{name}: {value} is assumed to be the model's own chat template; `trainwiz data show` shows its "
    "output.",
    "own_template.alpaca": "{name}: {value} uses the Alpaca prompt format there; trainwiz writes an instruction as a "
    "chat in the model's template.",
    "packing_counts_rows": "{name}: rows are packed end to end, and each attends only to itself (data.packing); a "
    "step counts rows in trainwiz, but packed sequences in the original program: check the effective batch.",
    "processes_unknown": "The number of processes that {program} starts is not read; set it with --num-gpus and "
    "--nodes.",
    "rows_changed": "The script changes its rows or its loss with its own code (line {line}), and only running it "
    "would show the result: the data is used unchanged. `trainwiz data show` shows what is trained on.",
    "several_trainings.several": "{count} commands in it could start a training; the one on line {line} was read.",
    "several_trainings.several_calls": "{name} is called {count} times; the call on line {line} was read.",
    "trl_learns_more": "TRL trains on every token of `messages` unless assistant_only_loss is on; this run trains on "
    "the answers (training.train_on).",
    "unknown_data": "{data}: no file or folder with this name was found, and it is not a Hub ID of a dataset "
    "(OWNER/NAME). Specify the file: --dataset FILE.",
    "unreadable_file": "{file} cannot be read: {reason}.",
    "unsupported_optimizer": "{name}: trainwiz has no optimizer {optimizer}, so the plan chooses one; "
    "engine.optimizer can be {known}.",
    "unsupported_schedule.no_schedule": "{name}: trainwiz has no schedule {kind}, so the learning rate decreases "
    "linearly; training.schedule can be {known}.",
    "unsupported_sharding": "{name}: {option} shards less than trainwiz's FSDP, which shards weights, gradients and "
    "optimizer states.",
}  # fmt: skip
"""scripts/catalogue.py reads them here."""
