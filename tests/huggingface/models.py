"""Small models of three kinds, with random weights: no file is loaded."""

import torch
from transformers import (
    BertConfig,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    ModernBertConfig,
    ModernBertModel,
    ViTConfig,
    ViTModel,
)

WORDS = 61
SMALL = {"vocab_size": WORDS, "bos_token_id": None, "eos_token_id": None, "pad_token_id": 0}


def gpt2(seed=1, **changes):
    config = {"n_layer": 2, "n_head": 2, "n_embd": 32, "n_positions": 128, "attn_pdrop": 0.0}
    torch.manual_seed(seed)
    return GPT2LMHeadModel(GPT2Config(**SMALL | config | changes)).eval()


def llama(**changes):
    """Grouped queries and rotary positions."""
    config = {"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2}
    config["intermediate_size"] = 64
    torch.manual_seed(2)
    return LlamaForCausalLM(LlamaConfig(**SMALL | config | changes)).eval()


def bert(**changes):
    config = {"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 64}
    torch.manual_seed(3)
    return BertModel(BertConfig(**SMALL | config | changes)).eval()


def vit():
    """Layers that do not know their index."""
    torch.manual_seed(4)
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 16, "image_size": 16, "patch_size": 4}
    return ViTModel(ViTConfig(num_hidden_layers=3, **sizes), add_pooling_layer=False).eval()


def mistral(window=4):
    """Every layer sees a window."""
    sizes = {"num_hidden_layers": 2, "hidden_size": 16, "num_attention_heads": 2, "num_key_value_heads": 2}
    torch.manual_seed(5)
    return MistralForCausalLM(MistralConfig(**SMALL, **sizes, intermediate_size=16, sliding_window=window)).eval()


def modern_bert():
    """A layer that sees all tokens, then two that see six on either side."""
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 16, "num_hidden_layers": 3}
    torch.manual_seed(6)
    config = {"local_attention": 12, "global_attn_every_n_layers": 3, "cls_token_id": None, "sep_token_id": None}
    return ModernBertModel(ModernBertConfig(**SMALL, **sizes, **config)).eval()


MODELS = {"gpt2": gpt2, "llama": llama, "bert": bert}


def tokens(batch, length, seed=0):
    return torch.randint(1, WORDS, (batch, length), generator=torch.Generator().manual_seed(seed))


def padded(batch, length, left):
    """A mask whose first row has so many padded tokens, on the left or on the right."""
    mask = torch.ones((batch, length), dtype=torch.long)
    mask[0, slice(left) if left > 0 else slice(left, None)] = 0
    return mask


def answers(model, attention, x, **inputs):
    """What a model says with an attention: logits, or the last hidden states."""
    model.set_attn_implementation(attention)
    with torch.no_grad():
        return model(x, **inputs)[0]
