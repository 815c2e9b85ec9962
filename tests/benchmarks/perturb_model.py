"""usage: perturb_model.py MODEL COPY LAYER SHARE     (run by the engine's own interpreter)

Copies a model with noise in the matrices of one layer, of SHARE times their standard deviation:
a kernel that computes one layer a little wrong.
"""

import shutil
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file


def main() -> None:
    """Write the copy."""
    source, copy, layer, share = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], sys.argv[4]
    shutil.copytree(source, copy)
    weights = load_file(copy / "model.safetensors")
    torch.manual_seed(1)
    for name, values in weights.items():
        if f"layers.{layer}." in name and values.ndim == 2:
            noise = torch.randn(values.shape) * float(share) * values.float().std()
            weights[name] = (values.float() + noise).to(values.dtype)
    save_file(weights, copy / "model.safetensors", metadata={"format": "pt"})


if __name__ == "__main__":
    main()
