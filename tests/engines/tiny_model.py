#!/usr/bin/env python3
"""Make a Qwen3-shaped model folder small enough to be made anew in every CI run.

The weights are drawn from a seed, so the answers are nonsense. All else is as in a model
worth serving: shapes, file names, byte-level BPE, chat template. The tokenizer learns from
the prose and sources every CPython carries, so two machines get the same tokenizer if they
have the same Python; the digests printed at the end say whether they do.

    tiny_model.py OUT [--seed N]        needs tokenizers and numpy, nothing else
"""
import argparse
import hashlib
import importlib
import inspect
import json
import pathlib
from pydoc_data.topics import topics

import numpy
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

VOCABULARY = 3072
MAX_LENGTH = 4096
HIDDEN, MLP, LAYERS = 128, 384, 2
# vLLM's CPU attention takes few head sizes; 64 is the smallest that other engines take too.
HEADS, KV_HEADS, HEAD_SIZE = 4, 2, 64

PAD, TURN, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
READING = ["argparse", "ast", "difflib", "doctest", "http.client", "inspect", "ipaddress",
           "json.decoder", "logging", "statistics", "tarfile", "textwrap", "typing", "uuid"]

# Clients send a message's content as a string or as a list of typed parts.
CHAT_TEMPLATE = """\
{%- for message in messages %}
{{- '<|im_start|>' ~ message.role ~ '\\n' }}
{%- if message.content is string %}{{- message.content }}
{%- else %}{%- for part in message.content if part.type == 'text' %}{{- part.text }}{%- endfor %}
{%- endif %}
{{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""


def train_tokenizer():
    texts = [topics[name] for name in sorted(topics)]
    texts += [inspect.getsource(importlib.import_module(name)) for name in READING]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[PAD, TURN, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    ))
    if tokenizer.get_vocab_size() != VOCABULARY:
        raise SystemExit(f"the texts gave only {tokenizer.get_vocab_size()} of {VOCABULARY} tokens")
    return tokenizer


def weight_shapes():
    """Names and shapes of all tensors; those with one dimension are norms."""
    yield "model.embed_tokens.weight", (VOCABULARY, HIDDEN)
    queries, keys = HEADS * HEAD_SIZE, KV_HEADS * HEAD_SIZE
    layer = {
        "input_layernorm": (HIDDEN,),
        "self_attn.q_proj": (queries, HIDDEN),
        "self_attn.k_proj": (keys, HIDDEN),
        "self_attn.v_proj": (keys, HIDDEN),
        "self_attn.o_proj": (HIDDEN, queries),
        "self_attn.q_norm": (HEAD_SIZE,),
        "self_attn.k_norm": (HEAD_SIZE,),
        "post_attention_layernorm": (HIDDEN,),
        "mlp.gate_proj": (MLP, HIDDEN),
        "mlp.up_proj": (MLP, HIDDEN),
        "mlp.down_proj": (HIDDEN, MLP),
    }
    for index in range(LAYERS):
        for part, shape in layer.items():
            yield f"model.layers.{index}.{part}.weight", shape
    yield "model.norm.weight", (HIDDEN,)
    yield "lm_head.weight", (VOCABULARY, HIDDEN)


def draw(shape, random):
    if len(shape) == 1:
        return numpy.ones(shape, numpy.float32)
    # Spread by fan-in: with the usual 0.02 the logits lie so close together that bfloat16
    # rounding, and with it the batch a request happens to share, picks the greedy token.
    return (random.standard_normal(shape) / numpy.sqrt(shape[1])).astype(numpy.float32)


def as_bfloat16(values):
    """The upper halves of the float32s, rounded to nearest; numpy has no such type."""
    bits = values.view(numpy.uint32).astype(numpy.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2").tobytes()


def write_weights(path, seed):
    random = numpy.random.RandomState(seed)  # the one generator whose stream numpy has frozen
    header, body = {"__metadata__": {"format": "pt"}}, bytearray()
    for name, shape in weight_shapes():
        begin = len(body)
        body += as_bfloat16(draw(shape, random))
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [begin, len(body)]}
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    path.write_bytes(len(head).to_bytes(8, "little") + head + body)
    return len(body) // 2


def write_json(path, content):
    path.write_text(json.dumps(content, indent=2) + "\n")


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("out", type=pathlib.Path)
    arguments.add_argument("--seed", type=int, default=0)
    given = arguments.parse_args()
    out = given.out
    out.mkdir(parents=True, exist_ok=True)

    tokenizer = train_tokenizer()
    tokenizer.save(str(out / "tokenizer.json"))
    ids = {token: tokenizer.token_to_id(token) for token in (PAD, TURN, END)}
    special_ids = {"bos_token_id": ids[PAD], "eos_token_id": ids[END], "pad_token_id": ids[PAD]}
    plain = {"special": True, "normalized": False, "lstrip": False, "rstrip": False, "single_word": False}
    write_json(out / "tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": MAX_LENGTH,
        "bos_token": None,
        "eos_token": END,
        "pad_token": PAD,
        "clean_up_tokenization_spaces": False,
        "added_tokens_decoder": {str(id): {"content": token, **plain} for token, id in ids.items()},
        "chat_template": CHAT_TEMPLATE,
    })
    write_json(out / "config.json", {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "torch_dtype": "bfloat16",
        "vocab_size": VOCABULARY,
        "max_position_embeddings": MAX_LENGTH,
        "hidden_size": HIDDEN,
        "intermediate_size": MLP,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_SIZE,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "attention_bias": False,
        "tie_word_embeddings": False,
        **special_ids,
    })
    # Qwen3's own defaults: a client that sends no temperature shall see them at work.
    write_json(out / "generation_config.json", {
        "do_sample": True, "temperature": 0.6, "top_k": 20, "top_p": 0.95, **special_ids})
    parameters = write_weights(out / "model.safetensors", given.seed)

    print(f"{out}: {parameters / 1e6:.2f} M parameters, {VOCABULARY} tokens")
    for name in ("tokenizer.json", "model.safetensors"):
        content = (out / name).read_bytes()
        print(f"  {name}: {len(content) / 1e6:.2f} MB, sha256 {hashlib.sha256(content).hexdigest()[:16]}")


if __name__ == "__main__":
    main()
