#!/usr/bin/env python3
"""Write the folder that tiny_model.py made as a GGUF file, so that llama-server serves the very same model.

    gguf_model.py MODEL OUT         needs gguf and numpy
"""
import json
import pathlib
import sys

import gguf
import numpy

LAYER = {
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}
WHOLE = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def name_in_gguf(name):
    """The name of a tensor, `model.layers.3.mlp.up_proj.weight` for instance, in a GGUF file."""
    stem = name.removesuffix(".weight")
    if stem in WHOLE:
        return WHOLE[stem] + ".weight"
    _, _, layer, part = stem.split(".", 3)
    return f"blk.{layer}.{LAYER[part]}.weight"


def tensors(path):
    """The tensors of a safetensors file as 32-bit floats."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    for name, about in json.loads(data[8:8 + size]).items():
        if name == "__metadata__":
            continue
        begin, end = (8 + size + offset for offset in about["data_offsets"])
        raw = data[begin:end]
        if about["dtype"] == "BF16":
            # The upper half of a 32-bit float.
            values = (numpy.frombuffer(raw, numpy.uint16).astype(numpy.uint32) << 16).view(numpy.float32)
        else:
            values = numpy.frombuffer(raw, {"F32": numpy.float32, "F16": numpy.float16}[about["dtype"]])
        yield name, numpy.ascontiguousarray(values.astype(numpy.float32).reshape(about["shape"]))


def main(model, out):
    config = json.loads((model / "config.json").read_text())
    tokenizer = json.loads((model / "tokenizer.json").read_text())
    settings = json.loads((model / "tokenizer_config.json").read_text())
    kind = config["model_type"]
    writer = gguf.GGUFWriter(out, kind)
    writer.add_name(model.name)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    # Where it stands moved in transformers 5.
    base = config.get("rope_theta") or config["rope_parameters"]["rope_theta"]
    writer.add_rope_freq_base(base)
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    added = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    vocabulary = sorted({**tokenizer["model"]["vocab"], **added}.items(), key=lambda entry: entry[1])
    writer.add_token_list([token for token, _ in vocabulary])
    writer.add_token_types([gguf.TokenType.CONTROL if token in added else gguf.TokenType.NORMAL
                            for token, _ in vocabulary])
    writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge)
                             for merge in tokenizer["model"]["merges"]])
    end = config["eos_token_id"]
    writer.add_eos_token_id(end[0] if isinstance(end, list) else end)
    writer.add_add_bos_token(False)
    template = model / "chat_template.jinja"
    writer.add_chat_template(template.read_text() if template.exists() else settings["chat_template"])
    for name, values in tensors(model / "model.safetensors"):
        writer.add_tensor(name_in_gguf(name), values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    print(f"   {out}: {out.stat().st_size} bytes")


if __name__ == "__main__":
    main(*map(pathlib.Path, sys.argv[1:]))
