"""What accelerate runs: `accelerate launch -m trainwiz.core.training RUNFOLDER [--resume CHECKPOINT]`.

The only part of trainwiz that imports torch and transformers.
"""
