"""Attention: exact, and linear in all its forms."""

from kernattn._sums.peaked import LinearState, LogNormaliser
from kernattn.attention import gates, patterns
from kernattn.attention._gated import (
    GatedState,
    gated_linear_attention,
    gated_linear_attention_step,
)
from kernattn.attention._gated_states import GatedStretch, gated_state
from kernattn.attention._linear import causal_linear_attention, causal_with_lse, linear_attention
from kernattn.attention._mechanisms.compressed import compressed_attention
from kernattn.attention._mechanisms.hashing import lsh_attention
from kernattn.attention._mechanisms.kernel import kernel_attention
from kernattn.attention._mechanisms.linformer import linformer_attention, linformer_projections
from kernattn.attention._mechanisms.nystrom import nystrom_attention
from kernattn.attention._mechanisms.routing import routing_attention, update_centroids
from kernattn.attention._mechanisms.scatterbrain import scatterbrain_attention
from kernattn.attention._mechanisms.window import window_attention, window_attention_step
from kernattn.attention._mechanisms.window_states import WindowState, initial_window_state
from kernattn.attention._recurrent import linear_attention_step
from kernattn.attention._softmax import softmax_attention, softmax_with_lse
from kernattn.attention._state_batches import put_states, stack_states, take_states
from kernattn.attention._state_files import load_state, save_state
from kernattn.attention._state_moves import move_states
from kernattn.attention._states import attend, attend_with_lse, initial_state, key_state, merge_states

__all__ = [
    "GatedState",
    "GatedStretch",
    "LinearState",
    "LogNormaliser",
    "WindowState",
    "attend",
    "attend_with_lse",
    "causal_linear_attention",
    "causal_with_lse",
    "compressed_attention",
    "gated_linear_attention",
    "gated_linear_attention_step",
    "gated_state",
    "gates",
    "initial_state",
    "initial_window_state",
    "kernel_attention",
    "key_state",
    "linear_attention",
    "linear_attention_step",
    "linformer_attention",
    "linformer_projections",
    "load_state",
    "lsh_attention",
    "merge_states",
    "move_states",
    "nystrom_attention",
    "patterns",
    "put_states",
    "routing_attention",
    "save_state",
    "scatterbrain_attention",
    "softmax_attention",
    "softmax_with_lse",
    "stack_states",
    "take_states",
    "update_centroids",
    "window_attention",
    "window_attention_step",
]


def __dir__() -> list[str]:
    return __all__
