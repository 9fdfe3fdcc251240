"""The table of presets."""

from __future__ import annotations

from kernattn.studies._presets.attention_error import ATTENTION_ERROR
from kernattn.studies._presets.gaussian_kernel import GAUSSIAN_KERNEL
from kernattn.studies._presets.preset import Preset
from kernattn.studies._presets.softmax_kernel import SOFTMAX_KERNEL

__all__ = ["PRESETS"]

PRESETS: dict[str, Preset] = {
    "softmax-kernel": SOFTMAX_KERNEL,
    "gaussian-kernel": GAUSSIAN_KERNEL,
    "attention-error": ATTENTION_ERROR,
}
